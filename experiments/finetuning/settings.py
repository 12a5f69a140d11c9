"""Settings of the tasks and of the protocol, read from ``tasks.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from loca_theory._lookup import find

PROTOCOL = "protocol"


@cache
def _read() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "tasks.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def task_names() -> list[str]:
    """Names of the tasks."""
    return [name for name in _read() if name != PROTOCOL]


def settings(task: str, *, quick: bool = False) -> dict[str, Any]:
    """All settings of a task: those of the protocol, overridden by those of the task.

    Args:
        task: Name of the task.
        quick: Use the small settings that only check in seconds that everything works.

    Raises:
        InvalidArgumentError: there is no such task.
    """
    known = {name: entry for name, entry in _read().items() if name != PROTOCOL}
    layers: list[Mapping[str, Any]] = [_read()[PROTOCOL], find("task", task, known)]
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update({key: value for key, value in layer.items() if key != "quick"})
    if quick:
        for layer in layers:
            merged.update(layer.get("quick", {}))
    return merged

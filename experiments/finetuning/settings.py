"""Settings of the tasks and of the protocol, read from ``tasks.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

PROTOCOL = "protocol"


@cache
def _read() -> dict[str, dict[str, Any]]:
    text = (Path(__file__).parent / "tasks.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def task_names() -> list[str]:
    """Names of the tasks."""
    return [name for name in _read() if name != PROTOCOL]


def kind_of(task: str) -> str:
    """The task without the number of a variant: ``digits`` for ``digits-3`` and ``digits``."""
    return re.sub(r"(?<=.)-[1-9]\d*$", "", task)


def settings(task: str, *, quick: bool = False) -> dict[str, Any]:
    """All settings of a task: those of the protocol, overridden by those of the task.

    A small task has variants with random data, for example ``digits-3``, where five random digits
    are new. The suffix is the setting ``draw``, which is 0 for the task itself.
    """
    tasks = {name: entry for name, entry in _read().items() if name != PROTOCOL}
    name = kind_of(task)
    draw = 0 if name == task else int(task.removeprefix(f"{name}-"))
    protocol, of_task = _read()[PROTOCOL], find("task", name, tasks)
    merged = {**protocol, **of_task, **(protocol["quick"] | of_task["quick"] if quick else {})}
    del merged["quick"]
    if draw:
        if merged["grid"] != "small":
            raise InvalidArgumentError(f"{name} has no variants; use {name}")
        merged |= {"draw": draw, "title": f"{merged['title']}, draw {draw}"}
    return merged

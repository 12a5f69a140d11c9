"""Preparation of tasks by name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from experiments.finetuning.settings import settings
from experiments.finetuning.tasks.prepared import Prepared, load, stored, write
from loca_theory.errors import ResourceError
from loca_theory.sweeps.version import code_version

# The code that makes the data and the pretrained models.
_PACKAGES = ("experiments.docstrings", "experiments.finetuning.tasks")
# Settings that the data and the pretrained model depend on.
_PREPARED_BY = (
    "module", "draw", "images", "turned", "texts", "length", "files", "pool", "validation", "test",
    "width", "layers", "heads", "patch", "vocabulary", "pretraining_steps", "pretraining_rate",
)  # fmt: skip


def module_of(task: str) -> ModuleType:
    """The module that makes a task."""
    return import_module(f"experiments.finetuning.tasks.{settings(task)['module']}")


def prepare(
    task: str, folder: Path, *, quick: bool = False, say: Callable[[str], None] | None = None
) -> Prepared:
    """Prepare the data and the pretrained model of a task, unless they are stored already.

    Args:
        task: Name of the task.
        folder: Parent folder of the prepared tasks.
        quick: Whether to use the small version.
        say: Called with a message when the task is prepared.

    Raises:
        InvalidArgumentError: there is no such task.
        ResourceError: a package is missing, or the folder cannot be written to.
    """
    chosen = settings(task, quick=quick)
    key = {name: chosen[name] for name in _PREPARED_BY if name in chosen}
    key = {"task": task, "code": code_version(*_PACKAGES), **key}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    target = folder / f"{task}-{name}"
    found = stored(target, task, key)
    if found is not None:
        return found
    if say and target.exists():
        say(f"note: {target} is damaged or incomplete and is prepared again")
    if say:
        say(f"preparing {chosen['title']}")
    try:
        splits, model = module_of(task).make(chosen)
    except ImportError as error:
        msg = f"{error}; pip install 'loca-theory[experiments]'"
        raise ResourceError(msg) from error
    return write(target, task, key, splits, model)


def base_model(prepared: Prepared, chosen: dict[str, Any]) -> nn.Module:
    """The pretrained model; a new head, if any, is initialised from torch's global generator."""
    _, weights = load(prepared.folder, prepared.digest)
    return module_of(prepared.task).base(chosen, weights)

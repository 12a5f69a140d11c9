"""Preparation of tasks by name."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from experiments.finetuning.settings import settings
from experiments.finetuning.tasks.prepared import Prepared, Split, load, stored, write
from loca_theory.errors import ResourceError
from loca_theory.sweeps.version import code_version

# The code that makes the data and the pretrained models.
_PACKAGES = ("experiments.docstrings", "experiments.finetuning.tasks")
# Settings that the data and the pretrained model depend on.
_PREPARED_BY = (
    "module", "draw", "images", "turned", "texts", "length", "files", "pool", "validation", "test",
    "width", "layers", "heads", "patch", "vocabulary", "pretraining_steps", "pretraining_rate",
)  # fmt: skip


def _module_of(chosen: Mapping[str, Any]) -> ModuleType:
    return import_module(f"experiments.finetuning.tasks.{chosen['module']}")


def prepare(
    task: str, folder: Path, *, quick: bool = False, say: Callable[[str], None] = lambda _: None
) -> Prepared:
    """Prepare the data and the pretrained model of a task, unless they are stored already."""
    chosen = settings(task, quick=quick)
    key = {name: chosen[name] for name in _PREPARED_BY if name in chosen}
    return prepare_by(task, chosen, key, folder, say)


def prepare_by(
    task: str,
    chosen: dict[str, Any],
    key: Mapping[str, Any],
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
) -> Prepared:
    """Prepare a task by its settings, of which ``key`` has all that its data depend on."""
    key = {"task": task, "code": code_version(*_PACKAGES), **key}
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]
    target = folder / f"{task}-{name}"
    found = stored(target, task, key)
    if found is not None:
        return found
    if target.exists():
        say(f"note: {target} is damaged or incomplete and is prepared again")
    say(f"preparing {chosen['title']}")
    try:
        splits, model = _module_of(chosen).make(chosen)
    except ImportError as error:
        msg = f"{error}; pip install 'loca-theory[experiments]'"
        raise ResourceError(msg) from error
    return write(target, task, key, splits, model)


def base_model(prepared: Prepared, chosen: dict[str, Any]) -> nn.Module:
    """The pretrained model; a new head, if any, is initialised from torch's global generator."""
    _, weights = load(prepared.folder, prepared.digest)
    model = _module_of(chosen).model(chosen)
    # A classifier gets a new head, a language model keeps its own.
    is_causal = getattr(model, "causal", False)
    kept = {name: one for name, one in weights.items() if is_causal or not name.startswith("head.")}
    model.load_state_dict(kept, strict=False)
    return model


@contextmanager
def opened(
    p: Mapping[str, Any], folder: Path
) -> Iterator[tuple[Prepared, dict[str, Split], torch.device]]:
    """The prepared task of a point, its data on the point's device, and the device."""
    device = torch.device(p["device"])
    prepared = Prepared(folder / p["folder"], p["task"], p["settings"], p["digest"])
    splits, _ = load(prepared.folder, prepared.digest)
    moved = {name: {key: t.to(device) for key, t in one.items()} for name, one in splits.items()}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), quiet():
        yield prepared, moved, device


@contextmanager
def quiet() -> Iterator[None]:
    """Silence messages of transformers and PEFT that do not apply to small models."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        logging.enable_progress_bar()

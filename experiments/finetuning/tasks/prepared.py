"""Tasks are prepared by name: stored on disk, read from there, and opened for runs."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from experiments.finetuning.settings import settings
from experiments.finetuning.tasks import SPLITS, Split
from experiments.finetuning.tasks.pretraining import pretrain
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder, write_atomically
from loca_theory.sweeps.version import code_version

_DATA, _MODEL, _ABOUT = "data.safetensors", "model.safetensors", "about.json"
# The code that makes the data and the pretrained models.
_PACKAGES = ("experiments.docstrings", "experiments.finetuning.tasks")
# Settings that the data and the pretrained model depend on.
_EXAMPLES_BY = ("module", "draw", "images", "turned", "texts", "length", "files")
_SPLIT_BY = ("pool", "validation", "test")
_MODEL_BY = ("width", "layers", "heads", "patch", "vocabulary")
_TRAINED_BY = ("pretraining_steps", "pretraining_rate")
_PREPARED_BY = (*_EXAMPLES_BY, *_SPLIT_BY, *_MODEL_BY, *_TRAINED_BY)


class Prepared(NamedTuple):
    """A prepared task."""

    folder: Path
    digest: str  # hash of data and pretrained weights


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
    with suppress(OSError, ValueError):  # missing or damaged
        about = json.loads((target / _ABOUT).read_text(encoding="utf-8"))
        if about == {"key": json.loads(json.dumps(key)), "digest": _digest_of(target)}:
            return Prepared(target, about["digest"])
    if target.exists():
        say(f"note: {target} is damaged or incomplete and is prepared again")
    say(f"preparing {chosen['title']}")
    try:
        splits, examples = (module := _module_of(chosen)).make(chosen)
    except ImportError as error:
        raise ResourceError(f"{error}; pip install 'loca-theory[experiments]'") from error
    if examples is None:  # an installed package has the pretrained model
        return _write(target, key, splits, {"none": torch.zeros(0)})
    return _write(target, key, splits, pretrain(module, chosen, examples))


def _write(
    folder: Path, key: Mapping[str, Any], splits: Mapping[str, Split], model: Split
) -> Prepared:
    writable_folder(folder)
    data = {
        f"{split}.{name}": tensor.detach().clone().contiguous()
        for split, tensors in splits.items()
        for name, tensor in tensors.items()
    }
    write_atomically(folder / _DATA, lambda path: save_file(data, path))
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.items()}
    write_atomically(folder / _MODEL, lambda path: save_file(weights, path))
    digest = _digest_of(folder)
    text = json.dumps({"key": key, "digest": digest}, indent=1) + "\n"
    write_atomically(folder / _ABOUT, lambda path: path.write_text(text, encoding="utf-8"))
    return Prepared(folder, digest)


@lru_cache(maxsize=2)
def load(folder: Path, digest: str) -> tuple[dict[str, Split], Split]:
    """Load the splits and the state of the pretrained model; the last two tasks stay in memory."""
    try:
        if _digest_of(folder) != digest:
            raise ResourceError(
                f"{folder} changed since it was prepared; delete it and run the command again"
            )
        data, model = load_file(folder / _DATA), load_file(folder / _MODEL)
    except (OSError, SafetensorError) as error:
        raise ResourceError(
            f"{folder} cannot be read ({type(error).__name__}); delete it and run again"
        ) from error
    splits: dict[str, Split] = {split: {} for split in SPLITS}
    for name, tensor in data.items():
        split, _, key = name.partition(".")
        splits[split][key] = tensor
    return splits, model


def _digest_of(folder: Path) -> str:
    """Hash of data and weights."""
    content = b"".join((folder / name).read_bytes() for name in (_DATA, _MODEL))
    return hashlib.sha256(content).hexdigest()[:32]


def base_model(prepared: Prepared, chosen: Mapping[str, Any]) -> nn.Module:
    """The pretrained model; a new head, if any, is initialised from torch's global generator."""
    _, weights = load(*prepared)
    model = _module_of(chosen).model(chosen)
    # A classifier gets a new head, a language model keeps its own.
    is_causal = getattr(model, "causal", False)
    body = {name: w for name, w in weights.items() if is_causal or not name.startswith("head.")}
    model.load_state_dict(body, strict=False)
    return model


@contextmanager
def opened(
    p: Mapping[str, Any], folder: Path
) -> Iterator[tuple[Prepared, dict[str, Split], torch.device]]:
    """A run's prepared task, its data on the run's device, and the device.

    Restores torch's random state afterwards, and silences warnings meanwhile.
    """
    device, prepared = torch.device(p["device"]), Prepared(folder / p["folder"], p["digest"])
    splits, _ = load(*prepared)
    moved = {name: {key: t.to(device) for key, t in part.items()} for name, part in splits.items()}
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), quiet():
        yield prepared, moved, device


@contextmanager
def quiet() -> Iterator[None]:
    """Silence all warnings, and the logs and progress bars of transformers."""
    from transformers.utils import logging

    before, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if had_bars:
            logging.enable_progress_bar()


def random_batches(
    total: int, limit: int | None, size: int, rng: np.random.Generator
) -> Iterator[torch.Tensor]:
    """Endless random batches of ``size`` indices, of a fixed random subset of ``limit`` examples.

    An incomplete batch at the end of a pass is dropped.
    """
    pool = rng.permutation(total)[:limit]
    if size > len(pool):
        raise InvalidArgumentError(
            f"batch={size} exceeds the {len(pool)} training examples; use a smaller batch"
        )
    while True:
        order = rng.permutation(pool)
        for start in range(0, len(order) - size + 1, size):
            yield torch.from_numpy(order[start : start + size])

"""Packages, checkpoints and data sets, from the hub or from local folders.

Loaded files cannot run code: remote code is off, weights are safetensors, and data are JSON, CSV,
Parquet or images. With ``HF_HUB_OFFLINE=1`` nothing is fetched.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.paper_scale.settings import Task
from loca_theory.errors import InvalidArgumentError, ResourceError

_FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
_IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_LONGEST_REASON = 160


@dataclass
class Prepared:
    """A model and its data, ready to be adapted and trained."""

    model: nn.Module
    train: Any
    evaluation: Any  # None for no evaluation
    collate: Callable[[Any], Any]  # makes a batch of examples
    metric: str  # that is reported
    head: str | None = None  # name of the new head
    measure: Callable[[Any], dict[str, float]] | None = None  # metrics of the predictions
    best_of_epochs: bool = False  # whether the best epoch is reported rather than the last
    value: Callable[[Mapping[str, float]], float] | None = None  # of other metrics
    loss: Callable[[nn.Module, Any], torch.Tensor] | None = None  # replaces the model's own
    # Called with the trained model and a folder for files; returns further metrics.
    afterwards: Callable[[nn.Module, Path], dict[str, float]] | None = None


def package(name: str) -> Any:
    """Import a package of the extra ``paper-scale``."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{error.name or name} is not installed: pip install 'loca-theory[paper-scale]'"
        raise ResourceError(msg) from error


def load_pretrained(kind: Any, source: str, **options: Any) -> Any:
    """Load an object of a class of transformers or diffusers."""
    if kind.__name__.startswith("Auto") and kind.__module__.startswith("transformers"):
        options["trust_remote_code"] = False
    with _reading(source, "--model"):
        return kind.from_pretrained(source, **options)


def read_data(task: Task, source: str | None) -> dict[str, Any]:
    """Read the parts of a data set: from the hub, or from a folder with files for each part."""
    datasets, parts = package("datasets"), ("train", *task.evaluation)
    if source is None:
        with _reading(task.data, "--data"):
            found = datasets.load_dataset(task.data, task.config, revision=task.revision)
    else:
        files = {part: _files_of(Path(source), part) for part in parts}
        lacking = [part for part in parts if not files[part]]
        if lacking:
            msg = f"{source} is not a folder with files for {', '.join(lacking)}, such as "
            msg += f"{lacking[0]}.json (or .jsonl, .csv, .parquet, or a folder of images)"
            raise InvalidArgumentError(msg)
        endings = {Path(name).suffix.lower() for found in files.values() for name in found}
        builders = {_FORMATS.get(ending, "imagefolder") for ending in endings}
        if len(builders) > 1:
            msg = f"{source} has files of several formats, {', '.join(sorted(builders))}; use one"
            raise InvalidArgumentError(msg)
        with _reading(source, "--data"):
            found = datasets.load_dataset(builders.pop(), data_files=files)
    for part in parts:
        if part not in found:
            msg = f"{source or task.data} has no part {part!r}: it has {', '.join(found)}"
            raise InvalidArgumentError(msg)
    return {part: found[part] for part in parts}


def column(data: Any, names: tuple[str, ...]) -> str:
    """The first of these columns that the data have."""
    for name in names:
        if name in data.column_names:
            return name
    msg = f"the data lack the column {' or '.join(names)}: they have {', '.join(data.column_names)}"
    raise InvalidArgumentError(msg)


def fingerprint(source: str | None) -> list[str] | None:
    """Names, sizes and times of the files in a local folder, to detect changes."""
    if source is None or not Path(source).exists():
        return None
    files = [file for file in sorted(Path(source).rglob("*")) if file.is_file()]
    return [
        f"{one.relative_to(source)} {one.stat().st_size} {one.stat().st_mtime_ns}" for one in files
    ]


def _files_of(folder: Path, part: str) -> list[str]:
    """Files beside each other, as ``train.json`` or ``train-00000.parquet``, or in a folder."""
    found = [*folder.glob(f"{part}.*"), *folder.glob(f"{part}-*"), *folder.glob(f"{part}/**/*")]
    known = (*_FORMATS, *_IMAGES)
    return sorted(str(file) for file in found if file.suffix.lower() in known)


@contextmanager
def _reading(source: str, option: str) -> Iterator[None]:
    """Turn errors of reading, which are of many types, into one line."""
    if source.startswith((".", "/", "~")) and not Path(source).exists():
        msg = f"{source} does not exist"
        raise InvalidArgumentError(msg)
    try:
        yield
    except Exception as error:
        # datasets wraps the cause in an error that says nothing.
        wrapped = type(error).__module__.startswith("datasets.") and error.__cause__ is not None
        cause = error.__cause__ if wrapped else error
        reason = " ".join(str(cause).split())[:_LONGEST_REASON] or type(cause).__name__
        msg = f"{source} cannot be read ({reason}); give a local folder with {option}"
        raise ResourceError(msg) from error

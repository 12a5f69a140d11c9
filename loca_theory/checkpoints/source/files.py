"""Tensors in safetensors and PyTorch files, of which no code is executed."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    LeftOutError,
    TensorEntry,
    any_error_as,
    intact,
)
from loca_theory.checkpoints.source.memory import TensorsCheckpoint
from loca_theory.checkpoints.source.paths import PICKLES
from loca_theory.errors import ResourceError

# How they begin: an archive, and a pickle before version 1.6.
_PICKLED = (b"PK\x03\x04", b"\x80")
# Under these keys, trainers store the model's tensors.
_MODELS = ("state_dict", "model", "model_state_dict", "module")
_MOST = 100_000


@dataclass
class SafetensorsFile(Checkpoint):
    """Tensors in a safetensors file.

    Each tensor is read through a memory mapping of its own, so that pages of the file that were
    read do not stay in the process's memory.

    Args:
        path: The file.
    """

    path: Path

    def __post_init__(self) -> None:
        with _opened(self.path) as tensors:
            for name in sorted(tensors.keys(), key=_natural_order):
                view = tensors.get_slice(name)
                self.entries[name] = TensorEntry(tuple(view.get_shape()), str(view.get_dtype()))
        # A worker process may have another current folder.
        self.path = self.path.absolute()

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        with _opened(self.path) as tensors:
            tensor = tensors.get_tensor(name) if expert is None else tensors.get_slice(name)[expert]
        # Copy, because the view would keep the mapping alive.
        return tensor.clone()


@dataclass
class TorchFile(Checkpoint):
    """Tensors in a PyTorch file, which is mapped into memory.

    The mapping is not pickled: a copy in another process maps the file anew.

    Args:
        path: The file.
    """

    path: Path

    def __post_init__(self) -> None:
        self.entries, self.left_out = self._tensors.entries, self._tensors.left_out
        self.path = self.path.absolute()

    @cached_property
    def _tensors(self) -> TensorsCheckpoint:
        return TensorsCheckpoint(_load_pickled(self.path))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_tensors"}

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        try:
            return self._tensors.load(name, expert)
        except LookupError as error:
            raise DamagedError(
                f"{name} has changed in {self.path} since it was opened; start again"
            ) from error


@dataclass
class Shards(Checkpoint):
    """Tensors in several files.

    Args:
        names_in: The names that an index lists for each file.
    """

    names_in: Mapping[Path, list[str]]
    _file_of: dict[str, Checkpoint] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for path, listed in self.names_in.items():
            missing = f"{path.name} does not hold it, although the index lists it there"
            try:
                file = open_file(path)
            except ResourceError as error:
                file, missing = Checkpoint(), str(error)
            for name in listed:
                if name in file.entries:
                    self.entries[name], self._file_of[name] = file.entries[name], file
                else:
                    reason = file.left_out.get(name, LeftOutError(missing, damaged=True))
                    self.left_out[name] = reason

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        return self._file_of[name].load(name, expert)


def open_file(path: Path) -> TorchFile | SafetensorsFile:
    """The tensors of a file of PyTorch, or of safetensors."""
    with any_error_as(ResourceError, f"{path} cannot be read"):  # of too long a name
        is_file = path.is_file()
    if not is_file:  # to open a pipe would take for ever
        raise ResourceError(f"{path} cannot be read: there is no ordinary file of this name")
    return TorchFile(path) if is_pickled(path) else SafetensorsFile(path)


def is_pickled(path: Path) -> bool | None:
    """Whether a file holds PyTorch's format, not safetensors; None if it looks like neither.

    How it begins decides, then its suffix: a damaged file is named as what it should be.
    """
    begin = b""
    with suppress(OSError), path.open("rb") as file:
        begin = file.read(9)
    # The length of a header may begin like a pickle.
    if begin[8:] == b"{":
        return False
    if path.suffix in PICKLES or (begin.startswith(_PICKLED) and not _is_other_archive(path)):
        return True
    return False if path.suffix == ".safetensors" else None


def _is_other_archive(path: Path) -> bool:
    """Whether a file is an intact archive that PyTorch did not write, such as one of NumPy."""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return not any(name.endswith("/data.pkl") for name in archive.namelist())
    return False


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import safe_open

    with intact(path, "safetensors"), safe_open(path, framework="pt") as tensors:
        yield tensors


def _load_pickled(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a PyTorch file without executing code in it."""
    with intact(path, "PyTorch"):
        load = partial(torch.load, path, map_location="cpu", weights_only=True)
        try:
            try:
                content = load(mmap=True)
            except (RuntimeError, ValueError):
                # Formats before PyTorch 1.6 cannot be mapped, and some file systems do not map.
                content = load()
        except pickle.UnpicklingError as error:
            raise DamagedError(
                f"{path} was refused: it holds Python objects that would run code when loaded, "
                "or is damaged; if you trust it, save its tensors as .safetensors"
            ) from error
        dictionaries = _state_dicts(content, iter(range(_MOST)))
    if not dictionaries:
        msg = f"{path} holds no dictionary of tensors; save the state_dict() of the model"
        raise DamagedError(msg)
    # The members of an ensemble, or several models, keep the keys that lead to them.
    loaded = {
        f"{key}.{name}".removeprefix(".") if len(dictionaries) > 1 else str(name): value
        for key, tensors in dictionaries.items()
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    }
    with any_error_as(DamagedError, f"{path} has a name that is no text", "; rename the tensor"):
        "".join(loaded).encode()
    return loaded


def _state_dicts(content: Any, left: Iterator[int], path: str = "") -> dict[str, dict[Any, Any]]:
    """The dictionaries of a model's tensors nearest to the top, by the keys or numbers to them.

    A usual name of the model goes before all others, and what holds a matrix before what holds
    none, such as a scheduler. The state of an optimiser is none: it is a dictionary by numbers.
    """
    # A small file can lead to the same dictionary in any number of ways.
    if next(left, None) is None:
        raise ValueError(f"more than {_MOST} dictionaries")
    if isinstance(content, list | tuple):
        content = {str(i): item for i, item in enumerate(content)}
    if not isinstance(content, dict):
        return {}
    nested = {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, dict | list | tuple) and value
    }
    for key in _MODELS:
        if dictionaries := _state_dicts(nested.get(key), left, f"{path}.{key}"):
            return dictionaries
    dictionaries = {
        name: tensors
        for key, value in nested.items()
        for name, tensors in _state_dicts(value, left, f"{path}.{key}").items()
    }
    with_matrix = {name: tensors for name, tensors in dictionaries.items() if _has_matrix(tensors)}
    holds_tensors = any(isinstance(value, torch.Tensor) for value in content.values())
    if not content or (holds_tensors and (_has_matrix(content) or not with_matrix)):
        return {path: content}
    return with_matrix or dictionaries


def _has_matrix(tensors: dict[Any, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.ndim > 1 for value in tensors.values())


def _natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Sorting key that puts layer 2 before layer 10."""
    parts = [(part.isdecimal() and len(part) < 19, part) for part in re.split(r"(\d+)", name)]
    return [(is_number, int(part) if is_number else 0, part) for is_number, part in parts]

"""Tensors in safetensors and PyTorch files, of which no code is executed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.weights.checkpoint import (
    Checkpoint,
    DamagedError,
    Entry,
    natural_order,
    one_line,
)
from loca_theory.checkpoints.weights.state_dicts import TensorsCheckpoint
from loca_theory.errors import ResourceError

# Under these keys, trainers store the model's tensors.
_MODELS = ("state_dict", "model", "model_state_dict", "module")


@dataclass
class FilesCheckpoint(Checkpoint):
    """Tensors in one file, or in several.

    Args:
        files: The files, each with the names that the index lists there; None without an index.

    Raises:
        DamagedError: the only file is damaged, or would execute code.
        ResourceError: the only file cannot be read.
    """

    files: Mapping[Path, list[str] | None]
    _file_of: dict[str, Path] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for path, names in self.files.items():
            try:
                found = self._listed(path, names)
            except ResourceError as error:
                if names is None:
                    raise
                self.damaged.update(dict.fromkeys(names, str(error)))
            else:
                self.entries |= found
                # A worker process may have another current folder.
                self._file_of |= dict.fromkeys(found, path.absolute())

    def _listed(self, path: Path, names: list[str] | None) -> dict[str, Entry]:
        """The tensors of a file; those that it should have and has not are noted as damaged."""
        raise NotImplementedError


@dataclass
class SafetensorsCheckpoint(FilesCheckpoint):
    """Tensors in safetensors files.

    Each tensor is read through a memory mapping of its own, so that pages of the file that were
    read do not stay in the process's memory.
    """

    def _listed(self, path: Path, names: list[str] | None) -> dict[str, Entry]:
        with _opened(path) as tensors:
            present = set(tensors.keys())
            wanted = sorted(present, key=natural_order) if names is None else names
            missing = f"{path.name} does not hold it, although the index lists it there"
            self.damaged |= {name: missing for name in wanted if name not in present}
            views = {name: tensors.get_slice(name) for name in wanted if name in present}
            return {
                name: Entry(tuple(view.get_shape()), str(view.get_dtype()))
                for name, view in views.items()
            }

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`."""
        with _opened(self._file_of[name]) as tensors:
            # Copy, because the view would keep the mapping alive.
            found = tensors.get_tensor(name) if expert is None else tensors.get_slice(name)[expert]
            return found.clone()


@dataclass
class TorchCheckpoint(FilesCheckpoint):
    """Tensors in PyTorch files.

    The files are mapped into memory. The mapping is not pickled: a copy in another process maps
    the files anew.
    """

    _mapped: dict[Path, TensorsCheckpoint] = field(init=False, default_factory=dict, repr=False)

    def _listed(self, path: Path, names: list[str] | None) -> dict[str, Entry]:
        del names  # the file may hold others
        tensors = self._tensors(path)
        self.damaged |= tensors.damaged
        self.ignored |= tensors.ignored
        return tensors.entries

    def _tensors(self, path: Path) -> TensorsCheckpoint:
        if path not in self._mapped:
            self._mapped[path] = TensorsCheckpoint(load_pickled(path))
        return self._mapped[path]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": {}}

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`."""
        path = self._file_of[name]
        tensors = self._tensors(path)
        found = tensors.entries.get(name)
        if found is None or found.shape != self.entries[name].shape:
            msg = f"{name} has changed in {path} since it was opened; start again"
            raise DamagedError(msg)
        return tensors.load(name, expert)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    damage = (SafetensorError, ValueError, OverflowError, AttributeError, LookupError)
    try:
        with safe_open(path, framework="pt") as tensors:
            yield tensors
    except damage as error:
        msg = f"{path} is not an intact safetensors file ({one_line(error)}); fetch it again"
        raise DamagedError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error


def load_pickled(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a PyTorch file without executing code in it."""
    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, ValueError):
            # Files in the format before PyTorch 1.6 cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        msg = f"{path} was refused: it holds Python objects that would run code when loaded, or is "
        msg += "damaged; if you trust it, save its tensors as .safetensors"
        raise DamagedError(msg) from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error
    except Exception as error:
        # A damaged archive can raise any exception; no code in it was executed.
        msg = f"{path} is not an intact PyTorch file ({one_line(error)}); fetch it again"
        raise DamagedError(msg) from error
    found = _state_dicts(content)
    if not found:
        msg = f"{path} holds no dictionary of tensors"
        raise DamagedError(msg)
    # The members of an ensemble, or several models, keep the keys that lead to them.
    return {
        f"{key}.{name}".removeprefix(".") if len(found) > 1 else str(name): value
        for key, tensors in found.items()
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    }


def _state_dicts(content: Any, path: str = "") -> dict[str, dict[Any, Any]]:
    """The dictionaries of a model's tensors nearest to the top, by the keys or numbers to them.

    A usual name of the model goes before all others, and what holds a matrix before what holds
    none, such as a scheduler. The state of an optimiser is none: it is a dictionary by numbers.
    """
    if isinstance(content, list | tuple):
        content = {str(i): one for i, one in enumerate(content)}
    if not isinstance(content, dict):
        return {}
    nested = {
        key: value
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, dict | list | tuple) and value
    }
    for key in _MODELS:
        if found := _state_dicts(nested.get(key), f"{path}.{key}"):
            return found
    if not content or any(isinstance(value, torch.Tensor) for value in content.values()):
        return {path: content}
    found = {
        name: tensors
        for key, value in nested.items()
        for name, tensors in _state_dicts(value, f"{path}.{key}").items()
    }
    return {name: one for name, one in found.items() if _has_matrix(one)} or found


def _has_matrix(tensors: dict[Any, Any]) -> bool:
    return any(isinstance(one, torch.Tensor) and one.ndim > 1 for one in tensors.values())

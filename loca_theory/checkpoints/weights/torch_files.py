"""Tensors in PyTorch files, of which no code is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.weights.checkpoint import Checkpoint, DamagedError, Entry, one_line
from loca_theory.checkpoints.weights.state_dicts import TensorsCheckpoint
from loca_theory.errors import ResourceError


@dataclass
class TorchCheckpoint(Checkpoint):
    """Tensors in one PyTorch file, or in several.

    The files are mapped into memory. The mapping is not pickled: a copy in another process maps
    the files anew.

    Args:
        files: The files, each with the names that the index lists there; None without an index.
        config: Configuration of the model.

    Raises:
        DamagedError: the only file is damaged, or would execute code.
        ResourceError: the only file cannot be read.
    """

    files: Mapping[Path, list[str] | None]
    config: Mapping[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(init=False)
    damaged: dict[str, str] = field(init=False)
    ignored: dict[str, str] = field(init=False)
    _mapped: TensorsCheckpoint | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        tensors = self._tensors()
        self.entries, self.damaged = tensors.entries, tensors.damaged
        self.ignored = tensors.ignored

    def _tensors(self) -> TensorsCheckpoint:
        if self._mapped is None:
            tensors: dict[str, torch.Tensor] = {}
            damaged: dict[str, str] = {}
            for path, names in self.files.items():
                try:
                    tensors.update(load_pickled(path))
                except ResourceError as error:
                    if names is None:
                        raise
                    damaged.update(dict.fromkeys(names, str(error)))
            self._mapped = TensorsCheckpoint(tensors)
            self._mapped.damaged.update(damaged)
        return self._mapped

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None}

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`.

        Raises:
            DamagedError: the tensor cannot be read.
        """
        return self._holder(name).load(name, expert)

    def _holder(self, name: str) -> TensorsCheckpoint:
        tensors = self._tensors()
        found = tensors.entries.get(name)
        if found is None or found.shape != self.entries[name].shape:
            files = ", ".join(str(path) for path in self.files)
            msg = f"{name} has changed in {files} since it was opened; start again"
            raise DamagedError(msg)
        return tensors


def load_pickled(path: Path) -> dict[str, torch.Tensor]:
    """Load the tensors of a PyTorch file without executing code in it.

    Raises:
        DamagedError: the file is damaged, or holds objects other than tensors and plain containers.
        ResourceError: the file cannot be read.
    """
    import pickle

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
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        msg = f"{path} holds no dictionary of tensors"
        raise DamagedError(msg)
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}

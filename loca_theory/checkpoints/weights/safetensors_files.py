"""Tensors in safetensors files."""

from __future__ import annotations

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
from loca_theory.errors import ResourceError


@dataclass
class SafetensorsCheckpoint(Checkpoint):
    """Tensors in one safetensors file, or in several.

    Each tensor is read through a memory mapping of its own, so that pages of the file that were
    read do not stay in the process's memory.

    Args:
        shards: The file of each name in the index; None if there is a single file.
        file: The single file, if there is no index.
        config: Configuration of the model.
    """

    file: Path | None = None
    shards: Mapping[str, Path] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    entries: dict[str, Entry] = field(init=False, default_factory=dict)
    damaged: dict[str, str] = field(init=False, default_factory=dict)
    ignored: dict[str, str] = field(init=False, default_factory=dict)
    _files: dict[str, Path] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None:
            self._read_header(self.file, None)
            return
        by_file: dict[Path, list[str]] = {}
        for name, path in (self.shards or {}).items():
            by_file.setdefault(path, []).append(name)
        for path, names in by_file.items():
            try:
                self._read_header(path, names)
            except ResourceError as error:
                self.damaged.update(dict.fromkeys(names, str(error)))

    def _read_header(self, path: Path, wanted: list[str] | None) -> None:
        with _opened(path) as tensors:
            present = set(tensors.keys())
            for name in sorted(present, key=natural_order) if wanted is None else wanted:
                if name not in present:
                    self.damaged[name] = (
                        f"{path.name} does not hold it, although the index lists it there"
                    )
                    continue
                view = tensors.get_slice(name)
                self.entries[name] = Entry(tuple(view.get_shape()), str(view.get_dtype()))
                # A worker process may have another current folder.
                self._files[name] = path.absolute()

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`.

        Raises:
            DamagedError: the tensor cannot be read.
        """
        with _opened(self._files[name]) as tensors:
            # Copy, because the view would keep the mapping alive.
            found = tensors.get_tensor(name) if expert is None else tensors.get_slice(name)[expert]
            return found.clone()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as tensors:
            yield tensors
    except (
        SafetensorError,
        ValueError,
        OverflowError,
        AttributeError,
        KeyError,
        IndexError,
    ) as error:
        msg = f"{path} is not an intact safetensors file ({one_line(error)}); fetch it again"
        raise DamagedError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error

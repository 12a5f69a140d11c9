"""Weights that are stored in parts, and computed from them when they are loaded.

- FP8 weights times their scales, in float32; see :func:`scale_names`.
- Weight normalisation; see :mod:`loca_theory.checkpoints.source.parametrised`.

Source: DeepSeek-AI, arXiv 2412.19437, for scales of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch

from loca_theory.checkpoints.source.checkpoint import (
    DEQUANTISE,
    FLOATS,
    Checkpoint,
    DamagedError,
    TensorEntry,
)
from loca_theory.checkpoints.source.layouts import by, holds_experts
from loca_theory.checkpoints.source.parametrised import is_normalised, normalised, parametrised
from loca_theory.checkpoints.source.quantised import FP8, quantised_modules, scale_names
from loca_theory.checkpoints.source.scales import grid_of, scaled

_UNREAD = "a part of it cannot be read"
_PARAMETRISED = "parametrised; remove the parametrisation, save the model and pass the copy"


@dataclass
class ComposedCheckpoint(Checkpoint):
    """A checkpoint with each weight instead of its parts.

    Weights that cannot be computed from their parts are left out with the reason.

    Args:
        source: The checkpoint as it is stored.
    """

    source: Checkpoint
    # The scale and the FP8 numbers of a weight, or the length and the direction.
    _parts: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        source = self.source
        self.entries, self.left_out = dict(source.entries), dict(source.left_out)
        self.config, self.module = source.config, source.module
        for tensors, weights, reason in quantised_modules(source):
            self._drop(tensors)
            for name in weights:
                self.leave_out(name, reason)
        names = set(source.names)
        for name in source.names:
            scale = next((scale for scale in scale_names(name) if scale in names), None)
            if scale is not None and (self._is_fp8(name) or name in source.left_out):
                self._drop([scale])
                self._scale(name, scale)
        if self._parts or self.config.get("quantization_config"):
            for name in source.names:
                if self._is_fp8(name) and name not in self._parts:
                    self.leave_out(name, f"FP8 without scales; {DEQUANTISE}")
        self._add_parametrised()

    def _drop(self, names: Iterable[str]) -> None:
        """Do not list some tensors, which are not weights, if they are there."""
        for name in names:
            self.entries.pop(name, None)

    def _is_fp8(self, name: str) -> bool:
        return name in self.entries and bool(FP8.match(self.entries[name].dtype))

    def _scale(self, name: str, scale: str) -> None:
        """Multiply a weight by its scales, if it is there."""
        stored, left_out = self.source.entries, self.source.left_out
        if name in left_out:
            return
        if scale in left_out:
            self.leave_out(name, _UNREAD, f"{scale}: {left_out[scale]}", damaged=True)
        elif not self._fits(name, scale):
            shapes = f"{scale} of shape {by(stored[scale].shape)}, and {by(stored[name].shape)}"
            self.leave_out(name, "its scales do not fit its shape", shapes, damaged=True)
        else:
            self._parts[name] = (scale, name)
            self.entries[name] = replace(stored[name], is_computed=True)

    def _fits(self, name: str, scale: str) -> bool:
        """Whether scales fit the shape of a weight."""
        weight, grid = self.source.entries[name].shape, self.source.entries[scale].shape
        if holds_experts(name, weight) and math.prod(grid) != 1:
            return weight[0] == grid[0] and grid_of(weight[1:], grid[1:], self._block) is not None
        return bool(weight) and grid_of(weight, grid, self._block) is not None

    @property
    def _block(self) -> list[int] | None:
        """Rows and columns of the blocks that share a scale, if the configuration states them."""
        settings = self.config.get("quantization_config")
        block = settings.get("weight_block_size") if isinstance(settings, dict) else None
        if not isinstance(block, list) or len(block) != 2:
            return None
        return block if all(type(side) is int and side > 0 for side in block) else None

    def _add_parametrised(self) -> None:
        """Compute weights of weight normalisation, and leave other parametrised ones out."""
        stored, left_out = self.source.entries, self.source.left_out
        shapes = {name: stored[name].shape if name in stored else () for name in self.source.names}
        for name, parts in parametrised(shapes).items():
            self._drop(parts)
            types = [stored[part].dtype for part in parts if part in stored]
            if damaged := [part for part in parts if part in left_out]:
                error = left_out[damaged[0]]
                self.leave_out(name, _UNREAD, f"{damaged[0]}: {error}", damaged=error.damaged)
            elif is_normalised(parts, shapes) and all(map(FLOATS.match, types)):
                self._parts[name] = (parts[0], parts[1])
                self.entries[name] = TensorEntry(shapes[parts[1]], types[1], is_computed=True)
            else:
                self.leave_out(name, _PARAMETRISED)
        order = {name: i for i, name in enumerate(self.source.names)}
        in_order = sorted(self.entries, key=lambda name: order[self._parts.get(name, (name,))[-1]])
        self.entries = {name: self.entries[name] for name in in_order}

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        """Read a tensor, or compute it from its parts."""
        if name not in self._parts:
            return self.source.load(name, expert)
        shape = self.entries[name].shape
        if expert is None and holds_experts(name, shape):
            weight = torch.empty(shape)
            for i in range(shape[0]):
                weight[i] = self.load(name, i)
            return weight
        first, second = self.stored(name, expert)
        if self._parts[name][1] != name:
            return normalised(first, second)
        if not first.float().isfinite().all():
            raise DamagedError(f"{name} has scales that are not finite: {self._parts[name][0]}")
        return scaled(second, first, self._block)

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the parts of a tensor or of one expert of it; see :class:`Checkpoint`."""
        if name not in self._parts:
            yield from self.source.stored(name, expert)
        for part in self._parts.get(name, ()):
            is_shared = math.prod(self.source.entries[part].shape) == 1
            yield self.source.load(part, None if is_shared else expert)

r"""Weights in FP8 or INT8, whose scales lie beside them in the checkpoint.

A weight is loaded as scale · (weight − zero point), in float32. Its scales are named

- ``X_scale`` (compressed-tensors, vLLM, FBGEMM) or ``X_scale_inv`` (DeepSeek, transformers) for the
  weight ``X``, each of which is a factor in spite of the second name;
- ``scale``, ``qscale_weight`` or ``scale_weight`` in the same module (DeepSeek-V4, Mistral,
  ComfyUI);
- ``SCB`` in the same module (bitsandbytes, LLM.int8), 127 times the factor of each row.

Source: T. Dettmers et al., arXiv 2208.07339, for the last; DeepSeek-AI, arXiv 2412.19437, for
scales of blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from loca_theory.checkpoints.weights.checkpoint import Checkpoint, DamagedError, Entry
from loca_theory.checkpoints.weights.packed import packed_weights
from loca_theory.checkpoints.weights.scales import ScaleGrid, grid_of, scaled
from loca_theory.checkpoints.weights.stored_matrices import holds_experts

_FP8 = re.compile(r"^(F8_E[45]M|float8_e[45]m)", re.IGNORECASE)
_INT8 = ("I8", "int8")
_REAL = re.compile(r"^(f|bf|float|bfloat)(8|16|32|64)", re.IGNORECASE)
_BESIDE = ("_scale", "_scale_inv")
_IN_MODULE = ("scale", "qscale_weight", "scale_weight", "SCB")
_ROW_MAXIMUM = 127
_WAY_OUT = "dequantise the model with its own library, save it and pass the copy"


@dataclass(frozen=True)
class _Scales:
    """The tensors that belong to a quantised weight.

    Attributes:
        name: Name of the scales.
        grid: How they cover the weight.
        factor: Factor of all scales.
        zero_point: Name of the zero points, or None.
        layout: Name of the number of the weight's layout, or None.
    """

    name: str
    grid: ScaleGrid
    factor: float = 1.0
    zero_point: str | None = None
    layout: str | None = None


@dataclass
class QuantisedCheckpoint(Checkpoint):
    """A checkpoint whose quantised weights are multiplied by their scales when they are loaded.

    The scales are not listed. Weights that cannot be made into numbers are, with the reason.

    Args:
        source: The checkpoint as it is stored.
    """

    source: Checkpoint
    entries: dict[str, Entry] = field(init=False)
    damaged: dict[str, str] = field(init=False)
    ignored: dict[str, str] = field(init=False)
    config: Mapping[str, Any] = field(init=False)
    _scales: dict[str, _Scales] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.entries, self.damaged = dict(self.source.entries), dict(self.source.damaged)
        self.ignored, self.config = dict(self.source.ignored), self.source.config
        for weight, kind, parts in packed_weights(self.source.entries):
            self.ignored[weight] = f"packed as {kind}: {_WAY_OUT}"
            self._drop([weight, *parts])
        unscaled = [name for name in list(self.entries) if not self._collect(name)]
        for name in self.source.damaged:
            # The scales of a weight that cannot be read are not weights.
            self._drop(self._parts(name))
        if self._scales or _is_quantised(self.config):
            for name in unscaled:
                self.ignored[name] = f"FP8 without scales: {_WAY_OUT}"
                self._drop([name])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.entries.pop(name, None)

    def _collect(self, name: str) -> bool:
        """Find the scales of a weight; return False if it must have scales and has none."""
        entry = self.entries.get(name)
        if entry is None or not entry.shape:
            return True
        if not _FP8.match(entry.dtype) and entry.dtype not in _INT8:
            return True
        present = [one for one in _scale_names(name) if self._is_listed(one)]
        if not present:
            return not (_FP8.match(entry.dtype) and len(entry.shape) > 1)
        scale, zero_point = present[0], f"{name}_zero_point"
        self._drop(self._parts(name))
        found = self._checked(name, entry, scale, zero_point)
        if isinstance(found, str):
            self.entries.pop(name)
            self.damaged[name] = found
        else:
            self._scales[name] = found
            self.entries[name] = replace(entry, is_scaled=True)
        return True

    def _checked(self, name: str, entry: Entry, scale: str, zero_point: str) -> _Scales | str:
        """The scales of a weight, or why they cannot be used."""
        names = [scale, *([zero_point] if self._is_listed(zero_point) else [])]
        for one in names:
            if one in self.source.damaged:
                return f"its {one} cannot be read: {self.source.damaged[one]}"
        found = [self.source.entries[one] for one in names]
        if not _REAL.match(found[0].dtype):
            return f"its scales {scale} are of type {found[0].dtype}: {_WAY_OUT}"
        grid = grid_of(
            entry.shape,
            found[0].shape,
            experts=holds_experts(name, entry.shape),
            block=_block_size(self.config),
        )
        if grid is None or any(one.shape != found[0].shape for one in found):
            shapes = " and ".join("x".join(map(str, one.shape)) for one in found)
            shape = "x".join(map(str, entry.shape))
            return f"{' and '.join(names)} of shape {shapes} do not fit its shape {shape}"
        layout = f"{name.removesuffix('weight')}weight_format"
        return _Scales(
            scale,
            grid,
            1 / _ROW_MAXIMUM if scale.rpartition(".")[2] == "SCB" else 1.0,
            names[1] if len(names) > 1 else None,
            layout if layout in self.source.entries else None,
        )

    def _is_listed(self, name: str) -> bool:
        return name in self.source.entries or name in self.source.damaged

    def _parts(self, name: str) -> list[str]:
        """Names of all tensors that belong to a weight, present or not."""
        module = name.removesuffix("weight")
        return [*_scale_names(name), f"{name}_zero_point", f"{module}weight_format"]

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor, times its scales if it has any; see :class:`Checkpoint`.

        Raises:
            DamagedError: the tensor or its scales cannot be read, or the scales are not finite.
        """
        weight = self.source.load(name, expert)
        scales = self._scales.get(name)
        if scales is None:
            return weight
        if scales.layout and int(self.source.load(scales.layout).flatten()[0]):
            msg = f"{name} is in the layout of a GPU ({scales.layout}): {_WAY_OUT}"
            raise DamagedError(msg)
        scale, *zero_point = self._grid_values(scales, expert)
        if not scale.float().isfinite().all():
            msg = f"{name} has scales that are not finite: {scales.name}"
            raise DamagedError(msg)
        grid = scales.grid if expert is None else replace(scales.grid, is_per_expert=False)
        return scaled(
            weight,
            scale,
            grid,
            zero_point=zero_point[0] if zero_point else None,
            factor=scales.factor,
        )

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield a tensor or one expert of it, and its scales; see :class:`Checkpoint`.

        Raises:
            DamagedError: a tensor cannot be read.
        """
        yield from self.source.stored(name, expert)
        if name in self._scales:
            yield from self._grid_values(self._scales[name], expert)

    def _grid_values(self, scales: _Scales, expert: int | None) -> Iterator[torch.Tensor]:
        for name in (scales.name, scales.zero_point):
            if name is not None:
                is_part = expert is not None and scales.grid.is_per_expert
                yield self.source.load(name)[expert] if is_part else self.source.load(name)


def with_scales(source: Checkpoint) -> Checkpoint:
    """Wrap a checkpoint if it may hold quantised weights."""
    is_quantised = any(
        _FP8.match(entry.dtype) or entry.dtype in (*_INT8, "U8", "uint8", "I32", "int32")
        for entry in source.entries.values()
    )
    return QuantisedCheckpoint(source) if is_quantised else source


def _scale_names(name: str) -> list[str]:
    beside = [f"{name}{end}" for end in _BESIDE]
    start = name.removesuffix("weight")
    is_weight = name.endswith("weight") and (not start or start.endswith("."))
    return [*beside, *(f"{start}{one}" for one in _IN_MODULE)] if is_weight else beside


def _is_quantised(config: Mapping[str, Any]) -> bool:
    return bool(config.get("quantization_config"))


def _block_size(config: Mapping[str, Any]) -> list[int] | None:
    """Rows and columns of the blocks that share a scale, if the configuration states them."""
    quantisation = config.get("quantization_config")
    found = quantisation.get("weight_block_size") if isinstance(quantisation, dict) else None
    if not isinstance(found, list) or len(found) != 2:
        return None
    return found if all(type(one) is int and one > 0 for one in found) else None

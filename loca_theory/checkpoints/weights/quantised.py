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

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from loca_theory.checkpoints.weights.checkpoint import Checkpoint, DamagedError, Entry
from loca_theory.checkpoints.weights.packed import packed_weights
from loca_theory.checkpoints.weights.scales import grid_of, scaled
from loca_theory.checkpoints.weights.stored_matrices import holds_experts

_FP8 = re.compile(r"^(F8_E[45]M|float8_e[45]m)", re.IGNORECASE)
_INT8 = ("I8", "int8")
_REAL = re.compile(r"^(f|bf|float|bfloat)(8|16|32|64)", re.IGNORECASE)
_BESIDE = ("_scale", "_scale_inv")
_IN_MODULE = ("scale", "qscale_weight", "scale_weight", "SCB")
_ROW_MAXIMUM = 127
_WAY_OUT = "dequantise the model with its own library, save it and pass the copy"


@dataclass
class QuantisedCheckpoint(Checkpoint):
    """A checkpoint whose quantised weights are multiplied by their scales when they are loaded.

    The scales are not listed. Weights that cannot be made into numbers are, with the reason.

    Args:
        source: The checkpoint as it is stored.
    """

    source: Checkpoint
    # Names of the scales of a weight, and of its zero points if it has any.
    _scales: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.entries, self.damaged = dict(self.source.entries), dict(self.source.damaged)
        self.ignored, self.config = dict(self.source.ignored), self.source.config
        for weight, kind, parts in packed_weights(self.source.entries):
            self._leave_out(weight, f"packed as {kind}: {_WAY_OUT}", parts)
        unscaled = []
        for name, entry in list(self.entries.items()):
            is_fp8 = bool(_FP8.match(entry.dtype))
            if name not in self.entries or not entry.shape or not (is_fp8 or entry.dtype in _INT8):
                continue
            present = [one for one in _scale_names(name) if self._is_listed(one)]
            if not present:
                unscaled += [name] if is_fp8 and len(entry.shape) > 1 else []
                continue
            zero_point = f"{name}_zero_point"
            names = [present[0], *([zero_point] if self._is_listed(zero_point) else [])]
            self._drop(_parts(name))
            if obstacle := self._obstacle(name, entry, names):
                self.damaged[name] = obstacle
                self._drop([name])
            else:
                self._scales[name] = names
                self.entries[name] = replace(entry, is_scaled=True)
        for name in self.source.damaged:
            # The scales of a weight that cannot be read are not weights.
            self._drop(_parts(name))
        if self._scales or self.config.get("quantization_config"):
            for name in unscaled:
                self._leave_out(name, f"FP8 without scales: {_WAY_OUT}")

    def _leave_out(self, name: str, reason: str, parts: Sequence[str] = ()) -> None:
        self.ignored[name] = reason
        self._drop([name, *parts])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            self.entries.pop(name, None)

    def _is_listed(self, name: str) -> bool:
        return name in self.source.entries or name in self.source.damaged

    def _obstacle(self, name: str, entry: Entry, names: Sequence[str]) -> str | None:
        """Why the scales and zero points of a weight cannot be used; None if they can."""
        for one in names:
            if one in self.source.damaged:
                return f"its {one} cannot be read: {self.source.damaged[one]}"
        scale, *zero_points = (self.source.entries[one] for one in names)
        if not _REAL.match(scale.dtype):
            return f"its scales {names[0]} are of type {scale.dtype}: {_WAY_OUT}"
        weight, grid = entry.shape, scale.shape
        is_complete = True
        if self._is_per_expert(name, names[0]):
            is_complete, weight, grid = weight[0] == grid[0], weight[1:], grid[1:]
        fits = is_complete and grid_of(weight, grid, self._block) is not None
        if fits and all(one.shape == scale.shape for one in zero_points):
            return None
        shapes = " and ".join("x".join(map(str, one.shape)) for one in (scale, *zero_points))
        shape = "x".join(map(str, entry.shape))
        return f"{' and '.join(names)} of shape {shapes} do not fit its shape {shape}"

    def _is_per_expert(self, name: str, part: str) -> bool:
        """Whether each expert in a tensor has its own part of the scales or zero points."""
        shape = self.source.entries[name].shape
        return holds_experts(name, shape) and math.prod(self.source.entries[part].shape) != 1

    @property
    def _block(self) -> list[int] | None:
        """Rows and columns of the blocks that share a scale, if the configuration states them."""
        quantisation = self.config.get("quantization_config")
        found = quantisation.get("weight_block_size") if isinstance(quantisation, dict) else None
        if not isinstance(found, list) or len(found) != 2:
            return None
        return found if all(type(one) is int and one > 0 for one in found) else None

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load one tensor, times its scales if it has any; see :class:`Checkpoint`."""
        weight = self.source.load(name, expert)
        if name not in self._scales:
            return weight
        layout = f"{name.removesuffix('weight')}weight_format"
        if layout in self.source.entries and int(self.source.load(layout).flatten()[0]):
            msg = f"{name} is in the layout of a GPU ({layout}): {_WAY_OUT}"
            raise DamagedError(msg)
        scale, *zero_points = self._factors(name, expert)
        if not scale.float().isfinite().all():
            msg = f"{name} has scales that are not finite: {self._scales[name][0]}"
            raise DamagedError(msg)
        if self._scales[name][0].rpartition(".")[2] == "SCB":
            scale = scale.float() * (1 / _ROW_MAXIMUM)
        factors = [scale, *zero_points]
        if expert is not None or not holds_experts(name, tuple(weight.shape)):
            return scaled(weight, *factors, block=self._block)
        found = torch.empty(weight.shape)
        for i, matrix in enumerate(weight):
            own = (one if one.numel() == 1 else one[i] for one in factors)
            found[i] = scaled(matrix, *own, block=self._block)
        return found

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield a tensor or one expert of it, and its scales; see :class:`Checkpoint`."""
        yield from self.source.stored(name, expert)
        yield from self._factors(name, expert)

    def _factors(self, name: str, expert: int | None) -> Iterator[torch.Tensor]:
        """The scales and zero points of a weight, or of one expert of it."""
        for part in self._scales.get(name, ()):
            is_whole = expert is None or not self._is_per_expert(name, part)
            yield self.source.load(part) if is_whole else self.source.load(part)[expert]


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


def _parts(name: str) -> list[str]:
    """Names of all tensors that belong to a weight, present or not."""
    module = name.removesuffix("weight")
    return [*_scale_names(name), f"{name}_zero_point", f"{module}weight_format"]

r"""Weights in FP8 or INT8, whose scales lie beside them in the checkpoint.

A weight is loaded as scale · (weight − zero point), in float32. Its scales are named

- ``X_scale`` (compressed-tensors, vLLM, FBGEMM) or ``X_scale_inv`` (DeepSeek, transformers) for the
  weight ``X``, each of which is a factor in spite of the second name;
- ``scale``, ``qscale_weight`` or ``scale_weight`` in the same module (DeepSeek-V4, Mistral,
  ComfyUI);
- ``SCB`` in the same module (bitsandbytes, LLM.int8), 127 times the factor of each row.

Weights that are packed, several into one stored number, are left out: only their libraries can
read them.

Source: T. Dettmers et al., arXiv 2208.07339, for the last; DeepSeek-AI, arXiv 2412.19437, for
scales of blocks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from loca_theory.checkpoints.weights.checkpoint import (
    FLOATS,
    Checkpoint,
    DamagedError,
    Entry,
)
from loca_theory.checkpoints.weights.layouts import by, holds_experts
from loca_theory.checkpoints.weights.scales import grid_of, scaled

_FP8 = re.compile(r"^(F8_E[45]M|float8_e[45]m)", re.IGNORECASE)
_BYTES, _INT8, _INT32 = ("U8", "uint8"), ("I8", "int8"), ("I32", "int32")
_EIGHT_BIT_EXPONENTS = ("F8_E8M0", "float8_e8m0fnu")
_ANY: tuple[str, ...] = ()
# Packed formats: how the name of the stored tensor ends, and then that of the weight; the types of
# the tensor; how the names of tensors end that must be there.
_PACKED = (
    ("GPTQ", ".qweight", ".weight", _ANY, (".g_idx",)),
    ("AWQ", ".qweight", ".weight", _ANY, ()),
    ("compressed-tensors", ".weight_packed", ".weight", _ANY, ()),
    ("MXFP4", "_blocks", "", _ANY, ("_scales",)),
    ("FP4 of bitsandbytes", "", "", _BYTES, (".absmax", ".quant_state.bitsandbytes__fp4")),
    ("NF4 of bitsandbytes", "", "", _BYTES, (".absmax",)),
    ("NVFP4", "", "", _BYTES, ("_scale", "_scale_2")),
    ("bytes", "", "", _BYTES, ("_scale",)),
    ("FP4", "", "", _INT8, ("_scale",)),
    ("FP4", "", "", _INT8, ("_scale_inv",)),
    ("FP4", ".weight", ".weight", _INT8, (".scale",)),
)
# How the names of other tensors of a packed weight may end.
_PARTS = (
    ".qzeros", ".scales", ".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx",
    ".weight_global_scale", ".quant_map", ".nested_absmax", ".nested_quant_map",
    ".quant_state.bitsandbytes__nf4",
)  # fmt: skip
_BESIDE = ("_scale", "_scale_inv")
_IN_MODULE = ("scale", "qscale_weight", "scale_weight", "SCB")
_ROW_MAXIMUM = 127
_WAY_OUT = "dequantise the model with its own library, save it and pass the copy"


@dataclass
class QuantisedCheckpoint(Checkpoint):
    """A checkpoint whose quantised weights, if any, are multiplied by their scales when loaded.

    The scales are not listed. Weights that cannot be made into numbers are, with the reason.

    Args:
        source: The checkpoint as it is stored.
    """

    source: Checkpoint
    # Names of the scales of a weight, and of its zero points if it has any.
    _scales: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        source = self.source
        self.entries, self.left_out = dict(source.entries), dict(source.left_out)
        self.config, self.module = source.config, source.module
        for weight, kind, parts in _packed_weights(source.entries):
            self.leave_out(weight, f"packed as {kind}: {_WAY_OUT}")
            self._drop(parts)
        damaged = {name for name, reason in source.left_out.items() if reason.damaged}
        for name in damaged:
            # The scales of a weight that cannot be read are not weights.
            self._drop(_parts(name))
        unscaled = []
        for name, entry in source.entries.items():
            is_fp8 = bool(_FP8.match(entry.dtype))
            if name not in self.entries or not entry.shape or not (is_fp8 or entry.dtype in _INT8):
                continue
            listed = [one for one in _parts(name) if one in source.entries or one in damaged]
            scales = [one for one in listed if one in _scale_names(name)]
            if not scales:
                unscaled += [name] if is_fp8 and len(entry.shape) > 1 else []
                continue
            self._drop(_parts(name))
            names = [scales[0], *(one for one in listed if one == f"{name}_zero_point")]
            if obstacle := self._obstacle(name, entry, names):
                self.leave_out(name, obstacle, damaged=True)
            else:
                self._scales[name] = names
                self.entries[name] = replace(entry, is_scaled=True)
        if self._scales or self.config.get("quantization_config"):
            for name in unscaled:
                self.leave_out(name, f"FP8 without scales: {_WAY_OUT}")

    def _drop(self, names: Sequence[str]) -> None:
        """Do not list some tensors, which are no weights, if they are there."""
        for name in names:
            self.entries.pop(name, None)

    def _obstacle(self, name: str, entry: Entry, names: Sequence[str]) -> str | None:
        """Why the scales and zero points of a weight cannot be used; None if they can."""
        for one in names:
            if one in self.source.left_out:
                return f"its {one} cannot be read: {self.source.left_out[one]}"
        scale, *zero_points = (self.source.entries[one] for one in names)
        if not FLOATS.match(scale.dtype):
            return f"its scales {names[0]} are of type {scale.dtype}: {_WAY_OUT}"
        weight, grid, is_complete = entry.shape, scale.shape, True
        if self._is_per_expert(name, names[0]):
            is_complete, weight, grid = weight[0] == grid[0], weight[1:], grid[1:]
        fits = is_complete and grid_of(weight, grid, self._block) is not None
        if fits and all(one.shape == scale.shape for one in zero_points):
            return None
        shapes = " and ".join(by(one.shape) for one in (scale, *zero_points))
        return f"{' and '.join(names)} of shape {shapes} do not fit its shape {by(entry.shape)}"

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

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        """Read a tensor, times its scales if it has any."""
        if name not in self._scales:
            return self.source.load(name, expert)
        shape = self.entries[name].shape
        if expert is None and holds_experts(name, shape):
            found = torch.empty(shape)
            for i in range(shape[0]):
                found[i] = self.load(name, i)
            return found
        layout = f"{name.removesuffix('weight')}weight_format"
        if layout in self.source.entries and self.source.load(layout).bool().any():
            msg = f"{name} is in the layout of a GPU ({layout}): {_WAY_OUT}"
            raise DamagedError(msg)
        scale, *zero_points = self._factors(name, expert)
        if not scale.float().isfinite().all():
            msg = f"{name} has scales that are not finite: {self._scales[name][0]}"
            raise DamagedError(msg)
        if self._scales[name][0].rpartition(".")[2] == "SCB":
            scale = scale.float() * (1 / _ROW_MAXIMUM)
        return scaled(self.source.load(name, expert), scale, *zero_points, block=self._block)

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield a tensor or one expert of it, and its scales; see :class:`Checkpoint`."""
        yield from self.source.stored(name, expert)
        yield from self._factors(name, expert)

    def _factors(self, name: str, expert: int | None) -> Iterator[torch.Tensor]:
        """The scales and zero points of a weight, or of one expert of it."""
        for part in self._scales.get(name, ()):
            is_whole = expert is None or not self._is_per_expert(name, part)
            yield self.source.load(part) if is_whole else self.source.load(part)[expert]


def _packed_weights(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, list[str]]]:
    """Find packed weights by the names and types of the tensors that belong to one.

    Yields the name that a weight has in an ordinary checkpoint, its format, and the names of the
    stored tensors that make it up.
    """
    # Tensors of the model itself have no dot in their names.
    dotted = {f".{name}": entry.dtype for name, entry in entries.items()}
    for name, dtype in dotted.items():
        for kind, end, weight_end, types, needed in _PACKED:
            stem = name.removesuffix(end)
            scales = [dotted.get(stem + one, "") for one in needed]
            is_odd = types == _INT8 and scales[0] not in _EIGHT_BIT_EXPONENTS
            if name.endswith(end) and (not types or dtype in types) and all(scales) and not is_odd:
                parts = [name, *(stem + one for one in (*needed, *_PARTS))]
                yield (stem + weight_end)[1:], kind, [one[1:] for one in parts]
                break


def _scale_names(name: str) -> list[str]:
    beside = [f"{name}{end}" for end in _BESIDE]
    start = name.removesuffix("weight")
    is_weight = name.endswith("weight") and (not start or start.endswith("."))
    return [*beside, *(f"{start}{one}" for one in _IN_MODULE)] if is_weight else beside


def _parts(name: str) -> list[str]:
    """Names of all tensors that belong to a weight, present or not."""
    module = name.removesuffix("weight")
    return [*_scale_names(name), f"{name}_zero_point", f"{module}weight_format"]

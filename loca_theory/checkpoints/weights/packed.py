"""Formats that pack several weights into one stored number, which only their libraries can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Entry

_ANY: tuple[str, ...] = ()
_BYTES, _INT8 = ("U8", "uint8"), ("I8", "int8")
_EIGHT_BIT_EXPONENTS = ("F8_E8M0", "float8_e8m0fnu")
_STATES = (".quant_map", ".nested_absmax", ".nested_quant_map")
_OF_GPTQ = (".qzeros", ".scales")
_COMPRESSED = (".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx")
# Of each format: how the name of the stored tensor ends, and then that of the weight; the types
# of the tensor; how the names of tensors end that must be there, and of those that may be there.
_FORMATS = (
    ("GPTQ", ".qweight", ".weight", _ANY, (".g_idx",), _OF_GPTQ),
    ("AWQ", ".qweight", ".weight", _ANY, (), _OF_GPTQ),
    ("compressed-tensors", ".weight_packed", ".weight", _ANY, (),
     (*_COMPRESSED, ".weight_global_scale")),
    ("MXFP4", "_blocks", "", _ANY, ("_scales",), ()),
    ("FP4 of bitsandbytes", "", "", _BYTES, (".absmax", ".quant_state.bitsandbytes__fp4"), _STATES),
    ("NF4 of bitsandbytes", "", "", _BYTES, (".absmax",),
     (*_STATES, ".quant_state.bitsandbytes__nf4")),
    ("NVFP4", "", "", _BYTES, ("_scale", "_scale_2"), ()),
    ("bytes", "", "", _BYTES, ("_scale",), ()),
    ("FP4", "", "", _INT8, ("_scale",), ()),
    ("FP4", "", "", _INT8, ("_scale_inv",), ()),
    ("FP4", ".weight", ".weight", _INT8, (".scale",), ()),
)  # fmt: skip


def packed_weights(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, list[str]]]:
    """Find packed weights by the names and types of the tensors that belong to one.

    Yields the name that a weight has in an ordinary checkpoint, its format, and the names of the
    stored tensors that make it up.
    """
    # Tensors of the model itself have no dot in their names.
    dotted = {f".{name}": entry.dtype for name, entry in entries.items()}
    for name, dtype in dotted.items():
        for kind, end, weight_end, types, needed, others in _FORMATS:
            stem = name.removesuffix(end)
            scales = [dotted.get(stem + one, "") for one in needed]
            is_odd = types == _INT8 and scales[0] not in _EIGHT_BIT_EXPONENTS
            if name.endswith(end) and (not types or dtype in types) and all(scales) and not is_odd:
                parts = [name, *(stem + one for one in (*needed, *others))]
                yield (stem + weight_end)[1:], kind, [one[1:] for one in parts if one in dotted]
                break

"""Formats that pack several weights into one stored number, which only their libraries can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loca_theory.checkpoints.weights.checkpoint import Entry

_BYTES = ("U8", "uint8")
_EIGHT_BIT_EXPONENTS = ("F8_E8M0", "float8_e8m0fnu")
_GPTQ_PARTS = ("qweight", "qzeros", "scales", "g_idx")
_COMPRESSED_PARTS = ("packed", "scale", "zero_point", "shape", "g_idx", "global_scale")


def packed_weights(entries: Mapping[str, Entry]) -> Iterator[tuple[str, str, list[str]]]:
    """Find packed weights by the names and types of the tensors that belong to one.

    Args:
        entries: Descriptions of the stored tensors, by name.

    Yields:
        The name that the weight has in an ordinary checkpoint; the format; the names of the stored
        tensors that make it up.
    """
    for name, entry in entries.items():
        found = _named(name, entries) or _typed(name, entry, entries)
        if found is not None:
            weight, kind, parts = found
            yield weight, kind, [one for one in parts if one in entries]


def _named(name: str, entries: Mapping[str, Entry]) -> tuple[str, str, list[str]] | None:
    start, _, last = name.rpartition(".")
    dot = f"{start}." if start else ""
    if last == "qweight":
        kind = "GPTQ" if f"{dot}g_idx" in entries else "AWQ"
        return f"{dot}weight", kind, [f"{dot}{part}" for part in _GPTQ_PARTS]
    if last == "weight_packed":
        weight = f"{dot}weight"
        return weight, "compressed-tensors", [f"{weight}_{part}" for part in _COMPRESSED_PARTS]
    if name.endswith("_blocks") and f"{name.removesuffix('_blocks')}_scales" in entries:
        weight = name.removesuffix("_blocks")
        return weight, "MXFP4", [name, f"{weight}_scales"]
    return None


def _typed(
    name: str, entry: Entry, entries: Mapping[str, Entry]
) -> tuple[str, str, list[str]] | None:
    if entry.dtype in _BYTES:
        if f"{name}.absmax" in entries:
            states = [one for one in entries if one.startswith(f"{name}.")]
            kind = "FP4" if any(one.endswith("fp4") for one in states) else "NF4"
            return name, f"{kind} of bitsandbytes", [name, *states]
        if f"{name}_scale" in entries:
            kind = "NVFP4" if f"{name}_scale_2" in entries else "bytes"
            return name, kind, [name, f"{name}_scale", f"{name}_scale_2"]
    elif entry.dtype in ("I8", "int8"):
        for scale in (f"{name}_scale", f"{name}_scale_inv", f"{name.removesuffix('weight')}scale"):
            if scale in entries and entries[scale].dtype in _EIGHT_BIT_EXPONENTS:
                return name, "FP4", [name, scale]
    return None

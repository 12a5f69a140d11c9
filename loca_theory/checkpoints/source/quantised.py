"""Which modules of a checkpoint are quantised, by the types and the names of their tensors.

Only FP8 weights with scales are read; see :mod:`loca_theory.checkpoints.source.composed`. A module
whose weight is of integers, or that a method which is not read has quantised, is left out whole:
only its own library knows how its tensors make up the weight.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from loca_theory.checkpoints.source.checkpoint import DEQUANTISE, FLOATS, Checkpoint, TensorEntry
from loca_theory.checkpoints.source.layouts import holds_experts

FP8 = re.compile(r"^(F8_E[45]M|float8_e[45]m)", re.IGNORECASE)

_READ = ("compressed-tensors", "fbgemm_fp8", "fp8", "modelopt")
# Types of indices and masks, which are not weights.
_INDICES = re.compile(r"64|bool|complex", re.IGNORECASE)
_SCALE = re.compile("scale|zero_point")
# The module of a tensor. Libraries name the parts of a weight weight.PART, _weight_PART and
# _PART._PART; torch, the state of a module's code _extra_state.
_MODULE = re.compile(r"(?:(.*?)\.)??(?:weight\..*|_[^.]*(?:\._[^.]*)*|[^.]*)")


def by_module(names: Iterable[str]) -> dict[str, list[str]]:
    """The tensors of each module, without those of the modules in it.

    >>> by_module(["a.weight", "a.weight.absmax", "a.b._weight_scale"])
    {'a': ['a.weight', 'a.weight.absmax'], 'a.b': ['a.b._weight_scale']}
    """
    modules: dict[str, list[str]] = {}
    for name in names:
        match = _MODULE.fullmatch(name)
        modules.setdefault((match and match[1]) or "", []).append(name)
    return modules


def quantised_modules(checkpoint: Checkpoint) -> Iterator[tuple[list[str], list[str], str]]:
    """Yield the tensors of each quantised module that is not read, its weights, and the reason.

    Such a module has neither submodules nor a floating ``weight``. It has integers, or FP8 with
    unknown scales; or any matrix, if the configuration states a method that is not read.
    """
    entries, settings = checkpoint.entries, checkpoint.config.get("quantization_config")
    method = settings.get("quant_method") if isinstance(settings, dict) else None
    method = None if method in _READ else method
    # By tensors alone, because torch stores other objects below those of a layer.
    inside = filter(None, by_module(entries))
    outer = {module[: dot.start()] for module in inside for dot in re.finditer(r"^|\.", module)}
    for module, names in by_module(checkpoint.names).items():
        stored = {
            name: entries[name]
            for name in names
            if name in entries and not name.endswith("_extra_state")
        }
        plain = {name for name, entry in stored.items() if _is_plain(name, entry)}
        weight = f"{module}.weight".removeprefix(".")
        if module in outer or weight in plain:
            continue
        has_scales = _has_unknown_scales(stored)
        packed = [
            name
            for name, entry in stored.items()
            if _is_integer(entry)
            or (FP8.match(entry.dtype) and has_scales)
            or (method is not None and len(entry.shape) > 1 and name not in plain)
        ]
        if packed:
            weights = [name.removesuffix("_blocks") for name in packed if name.endswith("_blocks")]
            biases = [name for name in names if name.endswith("bias")]
            reason = f"quantised ({method or stored[packed[0]].dtype}); {DEQUANTISE}"
            tensors = [name for name in names if name not in plain]
            yield tensors, [*(weights or [weight]), *biases], reason


def _is_plain(name: str, entry: TensorEntry) -> bool:
    """Whether a tensor is a weight of its own."""
    is_weight = name.rpartition(".")[2] == "weight" or holds_experts(name, entry.shape)
    return is_weight and bool(FLOATS.match(entry.dtype)) and not FP8.match(entry.dtype)


def _is_integer(entry: TensorEntry) -> bool:
    """Whether a tensor may have the numbers of a weight, in a type that does not float."""
    return bool(entry.shape) and not FLOATS.match(entry.dtype) and not _INDICES.search(entry.dtype)


def _has_unknown_scales(entries: Mapping[str, TensorEntry]) -> bool:
    """Whether a module has scales by other names; a single number may be of the layer's inputs."""
    names_known = {scale for name in entries for scale in scale_names(name)}
    unknown = [
        math.prod(entry.shape)
        for name, entry in entries.items()
        if _SCALE.search(name.rpartition(".")[2]) and name not in names_known
    ]
    return bool(unknown) and (names_known.isdisjoint(entries) or max(unknown) > 1)


def scale_names(name: str) -> list[str]:
    """Names that the scales of an FP8 weight may have.

    ``X_scale`` (compressed-tensors, FBGEMM, ModelOpt) or ``X_scale_inv`` (DeepSeek, transformers),
    which is a factor, too; or ``scale`` or ``qscale_weight`` in its module (DeepSeek-V4, Mistral).
    """
    names = [f"{name}_scale", f"{name}_scale_inv"]
    if name == "weight" or name.endswith(".weight"):
        names += [f"{name.removesuffix('weight')}{end}" for end in ("scale", "qscale_weight")]
    return names

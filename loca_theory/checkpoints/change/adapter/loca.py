r"""The increments of LoCA: the inverse cosine transform of a few coefficients, times a scaling α.

A file has the coefficients a of B components, their indices l and the shape (p, q) of a layer's
increment :math:`\alpha\,C^\top \mathcal S(a, l)\,D`. Of a parameter, p counts the rows of all its
matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.layers import AdaptedLayer, narrowest
from loca_theory.checkpoints.change.adapter.lora import fitting_patterns
from loca_theory.checkpoints.source.checkpoint import Checkpoint, DamagedError, LeftOutError, Reason
from loca_theory.transforms import idct2

_COEFFICIENTS = "loca_spectrum.coefficients"
_INDICES, _SHAPE = "loca_spectrum.indices", "loca_spectrum.shape"
# A search has further tensors, on which ΔW does not depend.
_SEARCH = tuple(f"loca_spectrum.{what}" for what in ("dropped", "offset", "recorded", "steps"))


def loca_shape(keys: Mapping[str, str], source: Checkpoint) -> tuple[int, int]:
    """Shape (p, q) of a layer's increment; raises why the file does not hold one."""
    needed = {_COEFFICIENTS, _INDICES, _SHAPE}
    if wrong := [name for name in sorted(needed ^ keys.keys()) if not name.startswith(_SEARCH)]:
        does = "lacks" if wrong[0] in needed else "should not hold"
        raise LeftOutError(f"by its configuration, the file {does} {wrong[0]}", damaged=True)
    for name in needed:
        source.entry(keys[name])
    sides = source.load(keys[_SHAPE]).double().flatten()
    if sides.shape != (2,) or not ((sides >= 1) & (sides < 2**62)).all():
        raise LeftOutError(f"{_SHAPE} holds no shape", str(sides.tolist()), damaged=True)
    p, q = sides.long().tolist()
    return p, q


def loca_increment(
    layer: AdaptedLayer, source: Checkpoint, config: Mapping[str, Any]
) -> torch.Tensor:
    """ΔW of a layer, or of all matrices of a parameter, as the base stores W."""
    p, q = loca_shape(layer.keys, source)
    a, indices = (source.load(layer.keys[part]) for part in (_COEFFICIENTS, _INDICES))
    counts = fitting_patterns(config, "n_frequency_pattern", layer.module)
    default = -1, config.get("n_frequency", 1000)
    _, count = max(counts, key=lambda fitting: fitting[0], default=default)
    if a.shape != (count,) or indices.shape != (count, 2):
        case = "another number of components than in the configuration"
        raise DamagedError(Reason(case, f"{a.numel()}, not {count}"))
    rows, columns = indices.long().unbind(1)
    if indices.min() < 0 or rows.max() >= p or columns.max() >= q:
        raise DamagedError(Reason("locations outside the matrix", f"{p}x{q}"))
    spectrum = torch.zeros(p * q, dtype=torch.float64)
    spectrum.index_add_(0, rows * q + columns, a.double())
    increment = narrowest(config.get("scaling", 1.0) * idct2(spectrum.reshape(p, q)))
    return (increment.mT if layer.is_transposed else increment).reshape(layer.shape)

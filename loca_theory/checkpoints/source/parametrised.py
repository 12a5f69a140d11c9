r"""Weights that a parametrisation of torch computes from other tensors.

Weight normalisation is :math:`W = g V / \lVert V \rVert`, of length g and direction V. The norm is
of each row, of each column or of the whole weight, as g has entries. The two are named ``X_g`` and
``X_v``, or ``parametrizations.X.original0`` and ``original1``.

Source: T. Salimans and D. P. Kingma, arXiv 1602.07868.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch

_NAME = re.compile(r"(.*?)parametrizations\.([^.]+)\..+")
# How the names of the parts end that weight_norm, spectral_norm and prune of torch.nn.utils store.
_LENGTHS = ("_g", ".original0")
_ENDS = (("_g", "_v"), ("_orig", "_u", "_v"), ("_orig", "_mask"))
_Shapes = Mapping[str, tuple[int, ...]]


def parametrised(shapes: _Shapes) -> dict[str, list[str]]:
    """The tensors that each parametrised weight is computed from, by its name.

    >>> parametrised({"a.weight_g": (3, 1), "a.weight_v": (3, 2), "b.weight": (2, 3)})
    {'a.weight': ['a.weight_g', 'a.weight_v']}
    """
    weights: dict[str, list[str]] = {}
    for name in sorted(shapes):
        if match := _NAME.fullmatch(name):
            weights.setdefault(match[1] + match[2], []).append(name)
        for ends in _ENDS:
            stem = name.removesuffix(ends[0])
            parts = [stem + end for end in ends]
            is_stored = parts[0] == name and stem not in shapes and shapes.keys() >= {*parts}
            if is_stored and (ends[0] == "_orig" or is_normalised(parts, shapes)):
                weights[stem] = parts
    return weights


def is_normalised(parts: Sequence[str], shapes: _Shapes) -> bool:
    """Whether parts of these shapes are the length and the direction of weight normalisation."""
    if len(parts) != 2 or not parts[0].endswith(_LENGTHS):
        return False
    length, direction = (shapes[part] for part in parts)
    if len(direction) < 2 or len(length) not in (0, len(direction)):
        return False
    sides = [(g, v) for g, v in zip(length, direction, strict=False) if g != 1]
    return len(sides) <= 1 and all(g == v for g, v in sides)


def normalised(length: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Compute g V / ‖V‖ in float32, or in float64 if it is stored so."""
    dims = [i for i in range(direction.ndim) if not length.ndim or length.shape[i] == 1]
    norm = torch.linalg.vector_norm(direction, dim=dims, keepdim=True, dtype=torch.float64)
    wide = torch.float64 if direction.dtype == torch.float64 else torch.float32
    return direction.to(wide) * (length / norm).to(wide)

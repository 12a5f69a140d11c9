"""How low the rank of a fine-tune's increments is, and how far they are from independent entries.

All statistics are those of ``loca-theory analyze``. The increments of independent normal entries of
the same shapes serve as controls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.settings import Settings
from loca_theory.checkpoints.statistics.figure_data import MatrixAnalysis
from loca_theory.checkpoints.statistics.matrix import analyse_matrix
from loca_theory.expressivity import Budget, compare_with_low_rank
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.increments import PrintedTest

KINDS = ("query", "key", "value", "attention output", "MLP in", "MLP out")
"""The kinds of layers whose increments are measured."""

# Names in the small transformers that the patterns for published models do not cover.
_OWN = {"output": "attention output", "expand": "MLP in", "contract": "MLP out"}
_LOW_RANK, _COSINE = "R", "D"
_METHODS = find_methods((_LOW_RANK, _COSINE))
# The p-value of the test as printed is not used, so it is computed from a single copy.
_UNUSED = PrintedTest(copies=1, sets=1)
# Ranks at which a matrix is measured, and parts of K = min(p, q), of which K/4 is the largest.
_RANKS, _PARTS = (1, 2, 8), (4, 8, 16, 32, 64)
_STATISTICS = (
    "sigma", "energy", "relative_norm", "zero_fraction", "excess_kurtosis", "tv", "mp_distance",
    "outlier_mass", "spikes", "stable_rank", "effective_rank", "rank_50", "rank_90", "rank_99",
)  # fmt: skip


def measured_layers(state: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """The weight matrices of a state dict that are measured, with their kinds."""
    matrices = [n for n, value in state.items() if value.ndim == 2 and n.endswith(".weight")]
    kinds = {n: _OWN.get(n.removesuffix(".weight").rpartition(".")[2]) or kind_of(n)
             for n in matrices}  # fmt: skip
    return {name: kind for name, kind in kinds.items() if kind in KINDS}


def measure(
    increments: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor] | None = None
) -> list[dict[str, Any]]:
    """Measure the increments of a run; constant ones, such as 0, are left out."""
    found = []
    for name, kind in measured_layers(increments).items():
        increment = increments[name].cpu()
        if float(increment.min()) == float(increment.max()):
            continue
        p, q = increment.shape
        k = min(p, q)
        wanted = {*_RANKS, *(k // part for part in _PARTS)}
        ranks = tuple(sorted(r for r in wanted if 1 <= r <= k // min(_PARTS)))
        settings = Settings(ranks, _METHODS, printed=_UNUSED)
        weights = None if before is None else before[name].cpu()
        analysis = analyse_matrix(name, increment, settings, weights=weights)
        found.append(
            {"name": name, "kind": kind, "layer": layer_of(name), "p": p, "q": q}
            | {key: getattr(analysis.matrix, key) for key in _STATISTICS}
            | {"ranks": _rank_rows(analysis)}
        )
    return found


def _rank_rows(analysis: MatrixAnalysis) -> list[dict[str, Any]]:
    """What low rank and the best cosine coefficients retain of one increment, by rank."""
    p, q = analysis.matrix.shape
    singular_values = np.sqrt(analysis.eigenvalues)
    errors = {(one.r, one.method): one for one in analysis.errors}
    rows = []
    for r in dict.fromkeys(r for r, _ in errors):
        low_rank, cosine = errors[r, _LOW_RANK], errors[r, _COSINE]
        found = compare_with_low_rank(singular_values, Budget(p, q, r), _COSINE)
        rows.append({
            "r": r,
            # Energy fraction of the r largest singular values, and its expectation for independent
            # normal entries.
            "retained": found.low_rank,
            "independent": None if low_rank.iid_error is None else 1 - low_rank.iid_error,
            # What the best DCT coefficients of the same budget retain, and its prediction from the
            # singular values alone, if singular vectors are independent of the basis. For large
            # stable rank, that approaches the threshold f + 2zφ(z).
            "cosine": 1 - cosine.error,
            "cosine_predicted": found.other,
            "threshold": found.normal_limit,
            "predicted": found.better == _LOW_RANK,
            "low_rank": found.low_rank > 1 - cosine.error,
        })  # fmt: skip
    return rows

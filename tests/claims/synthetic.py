"""Synthetic tables, which take the place of stored ones to show that a claim can be refuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from loca_theory.expressivity import Accounting, Budget, retained_energies, spectral_error
from loca_theory.increments import calibrated_test
from loca_theory.increments.histogram import histogram
from loca_theory.rounding import LowRankFamily, find_format, rounded_change, rounding_cells
from loca_theory.rounding.fit.choice import TRIED_STEPS
from loca_theory.transforms import idct2

Rows = list[dict[str, Any]]
# Rows of each table, by the argument of the check that names the table.
Tables = dict[str, Rows]


def _student_entries(rng: np.random.Generator) -> Tables:
    """An analysis of 5 matrices whose entries are Student's with 5 degrees of freedom."""
    rows = []
    for number in range(5):
        entries = histogram(torch.from_numpy(rng.standard_t(5, 2**16)))
        distance = calibrated_test(entries, rng, replicates=99).estimate
        rows.append({"name": f"layer {number}", "kind": "attention", "tv": distance})
    return {"table": rows}


def _half_speed(rng: np.random.Generator) -> Tables:
    """Two models on which the dense form of LoCA has half of LoRA's speed."""
    speeds = 0.5 + 0.01 * rng.standard_normal(2)
    rows = [
        {"model": f"model {number}", "rival": "LoCA dense", "of_lora": speed}
        for number, speed in enumerate(speeds)
    ]
    return {"table": rows}


def _independent_entries(rng: np.random.Generator) -> Tables:
    """An analysis of one matrix of independent normal entries."""
    values = np.square(np.linalg.svd(rng.standard_normal((96, 96)), compute_uv=False))
    matrix = {"name": "layer", "kind": "attention", "shape": [96, 96]}
    matrix["stable_rank"] = values.sum() / values.max()
    error = {"name": "layer", "r": 8, "method": "LoRA", "error": values[8:].sum() / values.sum()}
    return {"matrices": [matrix], "errors": [error]}


def _published(increment: Any, control: Any) -> Tables:
    """Fractions retained of an increment and of its controls, in the studies of the claims."""
    rows = [
        {
            "study": study,
            "package": study,
            "pair": "",
            "name": "layer",
            "role": role,
            "accounting": accounting.value,
            "concentration": 1.0,
            "unevenness": 1.0,
            "effective_rank": 1.0,
            **_retained(matrix, Budget(96, 96, r, accounting)),
        }
        for role, matrix in (("increment", increment), ("base", control), ("tuned", control))
        for study in ("rxnfp", "rxnfp-10k", "sre", "mhc-1", "mhc-2", "mhc-hlap", "mpnn")
        for accounting in (Accounting.PAPER, Accounting.TRAINABLE, Accounting.BITS)
        for r in (2, 4)
    ]
    return {"table": rows}


def _rounded(base: torch.Tensor, change: torch.Tensor) -> Tables:
    """A pair that is stored in bfloat16, and LoRA of rank 4 moved into its cells by 40 steps."""
    form, family = find_format("bfloat16"), LowRankFamily(4)
    base = form.round(base)
    tuned = form.round(base + change)
    d = (tuned - base).float()
    nearest = family.best(d)
    *_, moved = family.path(nearest, rounding_cells(base, tuned, form), TRIED_STEPS)
    errors = [(b @ a - change).square().sum() / change.square().sum() for b, a in (nearest, moved)]
    law = rounded_change(form, float(change.std()), float(base.std()))
    row = {
        "study": "rxnfp-10k",
        "format": form.name,
        "scale": 1.0,
        "matrix": "layer",
        "method": "lora",
        "r": 4,
        "changed": float((d != 0).double().mean()),
        "changed_law": law.changed,
        "retained": 1 - float(errors[1]),
        "retained_nearest": 1 - float(errors[0]),
    }
    return {"table": [row]}


def _normal(rng: np.random.Generator, size: float) -> torch.Tensor:
    return size * torch.from_numpy(rng.standard_normal((128, 128)))


def _retained(matrix: Any, budget: Budget) -> dict[str, float]:
    """Energy fractions that three forms retain, and what the singular values predict."""
    total = float(np.square(matrix).sum())
    retained = {
        method: float(retained_energies(matrix, method, [budget])[0]) / total
        for method in ("LoRA", "LoCA", "entries")
    }
    predicted = 1 - spectral_error(np.linalg.svd(matrix, compute_uv=False), "LoCA", budget)
    return {
        "p": budget.p,
        "q": budget.q,
        "r": budget.r,
        **retained,
        "predicted": predicted,
        "normal_limit": predicted,
    }


def _independent(rng: np.random.Generator) -> Any:
    return rng.standard_normal((96, 96))


def _low_rank(rng: np.random.Generator) -> Any:
    return rng.standard_normal((96, 2)) @ rng.standard_normal((2, 96))


def _smooth() -> Any:
    """Few cosine coefficients, and of low rank."""
    return idct2(np.diag(1.0 / np.arange(1, 97))).numpy()


TABLES: Mapping[str, Callable[[np.random.Generator], Tables]] = {
    "student entries": _student_entries,
    "half speed": _half_speed,
    "independent entries": _independent_entries,
    "independent increments": lambda rng: _published(_independent(rng), _low_rank(rng)),
    "smooth increments": lambda rng: _published(_smooth(), _independent(rng)),
    "weights of one magnitude": lambda rng: _rounded(_normal(rng, 1.0).sign(), _normal(rng, 1e-3)),
    "always moved": lambda rng: _rounded(_normal(rng, 1.0), _normal(rng, 1e-3)),
}
"""The synthetic tables by name."""

"""Theory beyond the paper: what rounding leaves of a change, and what its cells tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import svds

from loca_theory.claims.checks.empirical import load
from loca_theory.claims.estimates import Estimate, Returned, Rng, Tier
from loca_theory.rounding import (
    find_format,
    find_rank,
    rounded_change,
    rounded_singular_value,
    visible_from,
)

_KEY = ("study", "format", "scale", "matrix", "method", "r")
_SHAPE = (96, 128)
# Ranks and sizes in steps of the weights, at which at least twice as many entries change as there
# are unknowns.
_MERGES = ((1, 0.3), (4, 0.3), (2, 1.0), (8, 1.0), (4, 10.0), (16, 10.0))


def changed(*, results: Path | None, table: str, study: str) -> Returned:
    """How far the fraction of changed entries is from the law of normal weights and changes.

    Args:
        table: Name of the table, which ``experiments.published.rounded`` writes.
        study: Pair of fine-tune and base.

    Returns:
        The mean absolute difference over matrices, by format and scale of the change.
    """
    rows = load(results, table, (*_KEY, "changed", "changed_law"), _KEY)
    rows = rows[rows["study"] == study].drop_duplicates(["format", "scale", "matrix"])
    differences_of = {}
    for (name, scale), group in rows.groupby(["format", "scale"]):
        differences = (group["changed"] - group["changed_law"]).abs()
        differences_of[f"{name}, scale {scale:.2g}"] = float(differences.mean())
    return differences_of or ({}, f"{table}.parquet has no study {study}.")


def loss(*, results: Path | None, table: str, study: str) -> Returned:
    """Energy of the true change that extract retains inside rounding cells, less than without them.

    Args:
        table: Name of the table, which ``experiments.published.rounded`` writes.
        study: Pair of fine-tune and base.

    Returns:
        The smallest difference over matrices, formats, scales, forms and ranks.
    """
    rows = load(results, table, (*_KEY, "retained", "retained_nearest"), _KEY)
    rows = rows[rows["study"] == study]
    if rows.empty:
        return {}, f"{table}.parquet has no study {study}."
    gains = rows["retained"] - rows["retained_nearest"]
    note = f"{len(rows)} adapters, {int((gains != 0).sum())} moved; the largest gain is "
    return {"smallest gain": float(gains.min())}, f"{note}{gains.max():.4f}."


def spike(*, tier: Tier, rng: Rng, size: int, ratio: float, slope: bool = True) -> Returned:
    """The largest singular value of a rounded change, against the spiked model.

    The change has independent normal entries and one direction, the weights are normal, and both
    are stored in bfloat16.

    Args:
        tier: 6, 60 or 200 matrices.
        size: K.
        ratio: Standard deviation of the entries of the change over that of the weights.
        slope: Whether the model knows that rounding shrinks the direction.

    Returns:
        The mean ratio to the predicted value, for a direction of 0.7 and of 1.5 times the smallest
        singular value that shows.
    """
    form, shape, estimates = find_format("bfloat16"), (size, size), {}
    law = rounded_change(form, ratio)
    for times in (0.7, 1.5):
        value = 0.0
        independent = 1.0
        for _ in range(3):  # the direction has a part of the variance, on which it depends
            value = times * visible_from(law, ratio, shape, independent=independent)
            independent = 1 - (value / (size * ratio)) ** 2
        shown = value if slope else value / law.slope
        expected = rounded_singular_value(shown, law, ratio, shape, independent=independent)
        ratios = []
        for _ in range(tier.scaled(6, 60, 200)):
            left, right = (rng.standard_normal(size) for _ in range(2))
            direction = np.outer(left, right) * value
            change = ratio * independent**0.5 * rng.standard_normal(shape)
            change += direction / (np.linalg.norm(left) * np.linalg.norm(right))
            base = form.round(torch.from_numpy(rng.standard_normal(shape)))
            d = (form.round(base + torch.from_numpy(change)) - base).numpy()
            largest: Any = svds(d, 1, v0=np.ones(size), return_singular_vectors=False)
            ratios.append(float(largest[0]) / expected)
        estimates[f"at {times} times the threshold"] = Estimate.mean(ratios)
    return estimates


def rank(*, tier: Tier, rng: Rng, noise: float = 0.0) -> Returned:
    """How often the rank of a low-rank change is found from a merged pair in bfloat16.

    Args:
        tier: 12, 60 or 360 pairs.
        noise: Energy of independent entries in the change, relative to that of its low-rank part.

    Returns:
        The fraction of pairs whose rank is found.
    """
    form, right = find_format("bfloat16"), 0
    count = tier.scaled(12, 60, 360)
    for draw in range(count):
        r, steps = _MERGES[draw % len(_MERGES)]
        p, q = _SHAPE
        base = form.round(torch.from_numpy(0.02 * rng.standard_normal(_SHAPE)))
        change = torch.from_numpy(rng.standard_normal((p, r)) @ rng.standard_normal((r, q)))
        change *= steps * form.steps(base).median() / change.abs().median()
        added = torch.from_numpy(rng.standard_normal(_SHAPE))
        change += noise**0.5 * change.square().mean().sqrt() * added
        right += find_rank(base.bfloat16(), form.round(base + change).bfloat16()).rank == r
    return Estimate.fraction(right, count)

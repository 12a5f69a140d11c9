"""The power of the tests of ``experiments.live_kinds``, and of equivalence, by simulation.

The differences of the kinds of both primary comparisons are normal, with one mean and standard
deviation; both have the same reference, so their correlation is taken to be 1/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd

from experiments.live_kinds.phases import DESIGN
from experiments.pretrained.runs import Design
from experiments.verdicts import LEVEL, holm, sign_p_values, student
from loca_theory.sweeps import generator

_DRAWS = 20_000


def powers(gaps: Sequence[float], spread: float, design: Design = DESIGN) -> dict[str, float]:
    """Probabilities of verdicts, with the gaps of kinds and a standard deviation, in points.

    Of a difference as large as the margin, it is ``shown`` by Student's test after Holm's method
    if both comparisons have it, ``alone`` if the other has none, and seen by the ``signs`` if both
    have it. If there is none, the intervals lie inside the margin in ``points``, inside that in
    ``fractions`` of the gaps, and the verdict is ``equivalent``.
    """
    rng = generator(0, "live-kinds.power")
    common, *noises = rng.normal(size=(3, _DRAWS, len(gaps)))
    without_difference = spread * np.sqrt(0.5) * (np.array(noises) - common)
    is_first = np.array([1, 0])[:, None, None]
    everywhere = without_difference + design["margin"]
    alone = without_difference + design["margin"] * is_first
    inside = {
        "points": _is_inside(without_difference[0], design["margin"]),
        "fractions": _is_inside(without_difference[0] / np.array(gaps), design["fraction_margin"]),
    }
    is_seen = holm(student(without_difference).p_value)[0] <= LEVEL
    outcomes = {
        "shown": holm(student(everywhere).p_value)[0] <= LEVEL,
        "alone": holm(student(alone).p_value)[0] <= LEVEL,
        "signs": holm(sign_p_values(everywhere))[0] <= LEVEL,
        **inside,
        "equivalent": inside["points"] & inside["fractions"] & ~is_seen,
    }
    return {name: float(np.mean(occurs)) for name, occurs in outcomes.items()}


def _is_inside(differences: np.ndarray, margin: float) -> np.ndarray:
    """Whether the intervals of draws lie within a margin."""
    interval = student(differences)
    return np.maximum(-interval.low, interval.high) < margin


def table(design: Design = DESIGN) -> pd.DataFrame:
    """The power of the design by the number of kinds, those with the largest gaps, and spread."""
    chosen = design["power"]
    gaps = sorted(chosen["gaps"].values(), reverse=True)
    lines = [
        {"kinds": count, "spread": spread, **powers(gaps[:count], spread, design)}
        for spread, count in product(chosen["spreads"], chosen["counts"])
    ]
    return pd.DataFrame(lines)

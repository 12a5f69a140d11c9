"""What the design can see: the power of its tests and of equivalence, by simulation.

The differences of the kinds of both primary comparisons are normal, with one mean and standard
deviation; both have the same reference, so their correlation is taken to be 1/2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from scipy.stats import t

from experiments.finetuning.statistics import Row, sign_p_values
from experiments.live_kinds.phases import DESIGN
from experiments.pretrained.analysis import LEVEL, compare
from experiments.pretrained.runs import FIRST, Design
from loca_theory.sweeps import generator

_DRAWS = 20_000


def observed_spread(rows: Sequence[Row], kinds: Mapping[str, Sequence[str]]) -> float:
    """Standard deviation over kinds in the first study, in points, the larger of two."""
    table = compare(rows, FIRST["primary"], design={**FIRST, "kinds": kinds})[list(kinds)]
    return float(table.astype(float).std(axis=1, ddof=1).max())


def powers(gaps: Sequence[float], spread: float, design: Design = DESIGN) -> dict[str, float]:
    """Probabilities of verdicts, with the gaps of kinds and a standard deviation, in points.

    Of a difference as large as the margin, it is ``shown`` by Student's test after Holm's method
    if both comparisons have it, ``alone`` if the other has none, and seen by the ``signs`` if both
    have it. If there is none, the intervals lie inside the margin in ``points``, inside that in
    ``fractions`` of the gaps, and the verdict is ``equivalent``.
    """
    rng = generator(0, "live-kinds.power")
    common, *noises = rng.normal(size=(3, _DRAWS, len(gaps)))
    none = spread * np.sqrt(0.5) * (np.array(noises) - common)
    margin, is_first = design["margin"], np.array([1, 0])[:, None, None]
    mean, half, p_values = _student(none)
    fraction, fraction_half, _ = _student(none / np.array(gaps))
    is_inside = np.abs(mean[0]) + half[0] < margin
    is_fraction = np.abs(fraction[0]) + fraction_half[0] < design["fraction_margin"]
    is_equal = is_inside & is_fraction & (_holm(p_values)[0] > LEVEL)
    both, alone = none + margin, none + margin * is_first
    found = {
        "shown": _holm(_student(both)[2])[0] <= LEVEL,
        "alone": _holm(_student(alone)[2])[0] <= LEVEL,
        "signs": _holm(sign_p_values(both))[0] <= LEVEL,
        "points": is_inside,
        "fractions": is_fraction,
        "equivalent": is_equal,
    }
    return {name: float(np.mean(which)) for name, which in found.items()}


def _student(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, half widths of the 95% intervals, and p-values, over the last axis."""
    kinds, mean = draws.shape[-1], draws.mean(-1)
    error = draws.std(-1, ddof=1) / np.sqrt(kinds)
    return mean, t.isf(0.025, kinds - 1) * error, 2 * t.sf(np.abs(mean) / error, kinds - 1)


def _holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's p-values of two tests, over the first axis."""
    low, high = np.minimum(1, 2 * p_values.min(0)), p_values.max(0)
    return np.where(p_values == p_values.min(0), low, np.maximum(low, high))


def table(design: Design = DESIGN) -> pd.DataFrame:
    """The power of the design by the number of kinds, those with the largest gaps, and spread."""
    chosen = design["power"]
    gaps = sorted(chosen["gaps"].values(), reverse=True)
    lines = [
        {"kinds": count, "spread": spread, **powers(gaps[:count], spread, design)}
        for spread, count in product(chosen["spreads"], chosen["counts"])
    ]
    return pd.DataFrame(lines)

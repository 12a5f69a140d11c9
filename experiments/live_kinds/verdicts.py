"""Verdicts on the primary comparisons, and which kinds of tasks change them when left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.pretrained.analysis import primary, verdict
from experiments.pretrained.runs import Design
from experiments.tables import Row
from loca_theory.claims.rules import Verdict


def with_verdicts(rows: Sequence[Row], design: Design, gaps: Mapping[str, float]) -> pd.DataFrame:
    """The primary comparisons over the kinds of a design, with verdicts: one row per method.

    ``gaps`` are the points by which full fine-tuning leads linear probing, by kind. ``fraction`` is
    the mean of the kinds' differences as fractions of their gaps, and equivalence must hold in
    these too. A verdict is fragile if leaving out one kind changes it; ``decides`` lists these
    kinds and the verdict without each.
    """
    points, fractions, verdicts = _verdicts(rows, design, gaps)
    decides: dict[str, list[str]] = {method: [] for method in verdicts}
    for kind in design["kinds"]:
        kinds = {name: tasks for name, tasks in design["kinds"].items() if name != kind}
        for method, changed in _verdicts(rows, {**design, "kinds": kinds}, gaps)[-1].items():
            if changed != verdicts[method]:
                decides[method].append(f"without {kind} {changed}")
    ends = ("difference", "low", "high")
    shown = {
        method: {
            "verdict": f"{decided}{', fragile' if decides[method] else ''}",
            "decides": "; ".join(decides[method]),
            **{f"fraction {name}": fractions.loc[method, name] for name in ends},
            **points.loc[method],
        }
        for method, decided in verdicts.items()
    }
    return pd.DataFrame(shown).T


def _verdicts(
    rows: Sequence[Row], design: Design, gaps: Mapping[str, float]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Verdict]]:
    """The primary comparisons in points and in fractions of the gaps, and their verdicts."""
    points, fractions = primary(rows, design), primary(rows, {**design, "units": gaps})
    margin, fraction_margin = design["margin"], design["fraction_margin"]
    verdicts = {
        method: verdict(points.loc[method], margin, (fractions.loc[method], fraction_margin))
        for method in points.index
    }
    return points, fractions, verdicts

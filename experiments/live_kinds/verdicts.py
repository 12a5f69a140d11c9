"""The verdicts on the primary comparisons, and whether one kind decides them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.finetuning.statistics import Row
from experiments.pretrained.analysis import primary, word
from experiments.pretrained.runs import Design

EQUIVALENT = "equivalent within a margin"


def judged(rows: Sequence[Row], design: Design, gaps: Mapping[str, float]) -> pd.DataFrame:
    """The primary comparisons over the kinds of a design, with verdicts.

    ``fraction`` is the mean of the kinds' differences as fractions of their gaps. A verdict is
    fragile if it is another one without some kind, and ``decides`` names these kinds.
    """
    points, fractions = primary(rows, design), primary(rows, {**design, "units": gaps})
    verdicts = _verdicts(points, fractions, design)
    decides = dict.fromkeys(verdicts, "")
    for kind in design["kinds"]:
        others = {name: tasks for name, tasks in design["kinds"].items() if name != kind}
        without = {**design, "kinds": others}
        changed = _verdicts(
            primary(rows, without), primary(rows, {**without, "units": gaps}), design
        )
        for method, verdict in changed.items():
            if verdict != verdicts[method]:
                decides[method] += f"without {kind} {verdict}; "
    shown = {
        method: {
            "verdict": f"{verdict}{', fragile' if decides[method] else ''}",
            "decides": decides[method].removesuffix("; "),
            **{
                f"fraction {name}": fractions.loc[method, name]
                for name in ("difference", "low", "high")
            },
            **points.loc[method],
        }
        for method, verdict in verdicts.items()
    }
    return pd.DataFrame(shown).T


def _verdicts(points: pd.DataFrame, fractions: pd.DataFrame, design: Design) -> dict[str, str]:
    """The verdict on each comparison; equivalence must hold in fractions of the gap too."""
    found = {}
    for method in points.index:
        verdict, fraction = word(points.loc[method], design["margin"]), fractions.loc[method]
        if max(-fraction["low"], fraction["high"]) >= design["fraction_margin"]:
            verdict = "inconclusive" if verdict == EQUIVALENT else verdict
        found[method] = verdict
    return found

"""The overview figure: errors on independent entries, and what retains most of real changes."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.published import draw_studies
from experiments.published.measures import FORMS
from experiments.published.page import STUDIES, winners
from loca_theory.plotting.canvas import HEADLINE, Picture, styled
from loca_theory.plotting.looks import LOOKS

_SIZE, _TICK_EVERY = 768, 8
_THEOREM = {"printed line": "random locations", "LoRA": "LoRA", "LoCA": "LoCA"}
# Short names of the studies of published fine-tunes.
_SHORT = {
    "sre": "MiniLM",
    "rxnfp": "BERT",
    "rxnfp-10k": "BERT, less data",
    "mhc-1": "LSTM, class I",
    "mhc-2": "LSTM, class II",
    "mhc-hlap": "LSTM, spectra",
    "im2deep": "IM2Deep",
    "chgnet": "CHGNet",
    "ani": "ANI",
}


@styled
def draw_overview(theorem: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Draw the errors on independent entries, and what retains most of published fine-tunes."""
    figure = Picture(figsize=(9.0, 3.6))
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
    _theorem(left, theorem)
    _published(right, published)
    figure.suptitle(
        "On independent entries LoCA leaves a smaller error than LoRA.\n"
        "Of published changes, LoRA or plain entries mostly retain more.",
        **HEADLINE,
    )
    return figure


def _theorem(axis: Axes, table: pd.DataFrame) -> None:
    of_size = table[table["K"] == _SIZE]
    for method, title in _THEOREM.items():
        line = of_size[of_size["method"] == method].sort_values(["r", "engine"])
        # Exact values sort before simulated ones and are preferred.
        line = line.drop_duplicates("r")
        look = LOOKS[method]
        axis.plot(line["r"], line["error"], color=look.color, linestyle=look.dashes)
        height = line["error"].iloc[[-1]].to_list()[0]
        right = of_size["r"].max()
        axis.text(right + 0.6, height, title, color=look.color, va="center", fontsize=8)
    axis.set(xlabel=f"LoRA rank r, K = {_SIZE}", ylabel="relative error")
    axis.set_xticks(sorted(set(of_size["r"][of_size["r"] % _TICK_EVERY == 0])))
    axis.set_xlim(right=of_size["r"].max() + 13)
    axis.set_title("Independent normal entries: error")


def _published(axis: Axes, table: pd.DataFrame) -> None:
    """The form that retains most of published fine-tunes, by study."""
    rows = winners(table)
    rows = rows[rows["accounting"] == "paper"]
    draw_studies(axis, rows, {"increment": (0.0, 0.7)})
    changes = rows[rows["role"] == "increment"]
    fractions = pd.crosstab(changes["study"], changes["best"], normalize="index")[list(FORMS)]
    ends = fractions.cumsum(axis=1)
    for form in FORMS:  # named in its longest bar
        study = str(fractions[form].idxmax())
        middle = float((100 * ends[form] - 50 * fractions[form])[study])
        look = {"color": "white", "fontsize": 7, "ha": "center", "va": "center"}
        axis.text(middle, list(STUDIES).index(study), form, **look)
    axis.set_yticks(range(len(STUDIES)), [_SHORT[name] for name in STUDIES], fontsize=8)
    axis.set_xlabel("matrices, r = 4; an index costs a number")
    axis.set_title("Published fine-tunes: what retains most")

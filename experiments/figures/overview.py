"""The overview figure: the main results in five panels."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.figures.comparisons import draw_group, kinds_in_words, largest_design
from experiments.figures.published import draw_studies
from experiments.published.measures import FORMS
from experiments.published.page import STUDIES, winners
from loca_theory.plotting.canvas import BLUE, GREY, Picture, styled
from loca_theory.plotting.lines import LOOKS
from loca_theory.plotting.results.verdicts import draw_verdicts

_SIZE, _RANK = 768, 8
_THEOREM = {"printed line": "random locations", "LoRA": "LoRA", "LoCA": "LoCA"}
# Names of the studies of published fine-tunes, in their order.
_SHORT = ("MiniLM", "BERT", "BERT, less data", "LSTM, class I", "LSTM, class II", "LSTM, spectra",
          "IM2Deep", "CHGNet", "ANI")  # fmt: skip
_SEARCHES = ("coefficients-only", "central", "eight-direction", "swap", "reselect",
             "annealed-pursuit")  # fmt: skip


@styled
def draw_overview(
    theorem: pd.DataFrame,
    published: pd.DataFrame,
    toy: pd.DataFrame,
    tuned: pd.DataFrame,
    claims: pd.DataFrame,
) -> Figure:
    """Draw Theorem 1, published fine-tunes, the toy experiment, fine-tuning and the ledger."""
    figure = Picture(figsize=(11.0, 6.6))
    # Separate subfigures: the long labels of a lower panel do not narrow the panel above it.
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.25), hspace=0.04).flat
    left, middle, right = above.subplots(1, 3, width_ratios=(1.1, 1.1, 1))
    _theorem(left, theorem)
    _published(middle, published)
    _toy(right, toy)
    left, right = below.subplots(1, 2, width_ratios=(1, 1.3))
    _tuned(left, tuned)
    _claims(right, claims)
    return figure


def _theorem(axis: Axes, table: pd.DataFrame) -> None:
    mine = table[table["K"] == _SIZE]
    for method, title in _THEOREM.items():
        line = mine[mine["method"] == method].sort_values(["r", "engine"])
        # Exact values sort before simulated ones and are preferred.
        line = line.drop_duplicates("r")
        look = LOOKS[method]
        axis.plot(line["r"], line["error"], color=look.color, linestyle=look.dashes)
        height = line["error"].iloc[[-1]].to_list()[0]
        axis.text(mine["r"].max() + 0.6, height, title, color=look.color, va="center", fontsize=8)
    axis.set(xlabel=f"LoRA rank r, K = {_SIZE}", ylabel="relative error")
    axis.set_xticks(sorted(set(mine["r"][mine["r"] % _RANK == 0])))
    axis.set_xlim(right=mine["r"].max() + 13)
    axis.set_title("Theorem 1: independent entries")


def _published(axis: Axes, table: pd.DataFrame) -> None:
    """What retains most of published fine-tunes, by study, and below it the same of the weights."""
    rows = winners(table)
    rows = rows[rows["accounting"] == "paper"]
    draw_studies(axis, rows, {"increment": (-0.1, 0.5), "base": (0.28, 0.16)})
    changes = rows[rows["role"] == "increment"]
    fractions = pd.crosstab(changes["study"], changes["best"], normalize="index")[list(FORMS)]
    ends = fractions.cumsum(axis=1)
    for form in FORMS:  # named in its longest bar
        study = str(fractions[form].idxmax())
        middle = float((100 * ends[form] - 50 * fractions[form])[study])
        axis.text(middle, list(STUDIES).index(study) - 0.1, form, color="white", fontsize=7,
                  ha="center", va="center")  # fmt: skip
    axis.set_yticks(range(len(_SHORT)), _SHORT, fontsize=8)
    axis.set_xlabel(
        "matrices in which a form retains most, r = 4\n"
        "(an index costs a number; thin: weights before)"
    )
    axis.set_title("Published fine-tunes: what retains most")


def _toy(axis: Axes, table: pd.DataFrame) -> None:
    plain = table[(table["interpretation"] == "default") & table["condition"].isna()]
    recovered = dict(zip(plain["search"], plain["recovered"], strict=True))
    for name in [name for name in reversed(_SEARCHES) if name in recovered]:
        is_paper = name == "central"
        label: Any = name + " (paper)" * is_paper  # matplotlib's types know numbers alone
        fraction = 100 * recovered[name]
        axis.barh(label, fraction, color=BLUE if is_paper else GREY, height=0.6)
        axis.text(fraction + 1.5, label, f"{fraction:.1f}", va="center", fontsize=8)
    axis.set(xlabel="problems solved, %", xlim=(0, 112))
    axis.grid(visible=False, axis="y")
    axis.set_title("Toy experiment: problems solved")


def _tuned(axis: Axes, table: pd.DataFrame) -> None:
    """The decided comparisons over the most tasks, by kind."""
    rows = largest_design(table)
    draw_group(axis, rows[rows["measure"] == "accuracy"])
    axis.set_xlabel(
        "difference, points of accuracy\n(dots: kinds of tasks; line: bounds; grey: margin)"
    )
    axis.set_title(f"Fine-tuning: {kinds_in_words(rows)}")


def _claims(axis: Axes, table: pd.DataFrame) -> None:
    table = table[table["subject"] == "paper"]
    draw_verdicts(table, ax=axis)
    axis.set_title(f"The ledger: verdicts on {len(table)} claims of the paper")
    longest = table.groupby("section").size().max()
    axis.set_xlim(0, 1.05 * longest)
    # The bars fill the axes, so the key is below them.
    axis.legend(loc="upper center", bbox_to_anchor=(0.35, -0.13), ncols=3, fontsize=9,
                handlelength=1.0, columnspacing=1.2)  # fmt: skip

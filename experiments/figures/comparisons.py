"""Figure of the comparisons that decide the claims on fine-tuning; ``runs`` shares its words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from experiments.finetuning.settings import kind_of
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import BLUE, GREEN, GREY, RED, Canvas, styled

# The statement of a verdict on the first of two methods, and its colour.
_WORDS = {
    "supported": ("better", GREEN),
    "equivalent within a margin": ("the same within ±{}", BLUE),
    "not supported": ("not better by {}", RED),
    "inconclusive": ("undecided", GREY),
}
_ROW = 0.36
_MARGIN_COLOR, _KINDS_COLOR = "#e8e8e8", "#777777"
_NOTES = (
    "V1 to V5: the paper's ablations of LoCA; in V1 the locations are drawn at random and stay.\n"
    "reselect, swap: this package's searches for locations instead of the paper's."
)
_UNITS = {"accuracy": "difference, points of accuracy", "loss": "difference, per cent of the loss"}


@styled
def draw_comparisons(table: pd.DataFrame) -> Figure:
    """Mean differences of the design with the most tasks, with bounds and verdicts.

    The best verdicts come first. The bar of a row goes from −margin to the margin. Small dots are
    the differences of the kinds of tasks.
    """
    table = largest_design(table)
    if table.empty:
        raise InvalidArgumentError("no comparison has a verdict yet, so there is nothing to draw")
    order = list(_WORDS).index
    table = table.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    groups = list(table.groupby("measure", sort=True))
    heights = [len(rows) for _, rows in groups]
    size = (9.5, _ROW * sum(heights) + 0.5 * len(groups) + 0.7)
    canvas = Canvas.of(None, size, len(groups), height_ratios=heights)
    for axis, (measure, rows) in zip(canvas.axes.flat, groups, strict=True):
        draw_group(axis, rows)
        axis.use_sticky_edges = False  # so that the widest margin ends inside the axis
        axis.autoscale(axis="x")
        axis.set_xlabel(_UNITS[str(measure)], fontsize=8)
        for height, line in zip(axis.get_yticks(), rows.to_dict("records"), strict=True):
            look = {"fontsize": 8, "weight": "bold", "color": _WORDS[line["verdict"]][1]}
            beside = {"transform": axis.get_yaxis_transform(), "va": "center"}
            axis.text(1.02, height, difference_in_words(line), **beside, **look)
    mark = partial(Line2D, [], [])
    marks = [
        mark(color=_KINDS_COLOR, marker=".", linestyle="none", label="one kind of task"),
        mark(color="#222222", marker="o", ms=4, lw=2.5, label="mean, and bounds that decide"),
        mark(color=_MARGIN_COLOR, linewidth=6, label="within the margin fixed beforehand"),
    ]
    supported = (table["verdict"] == "supported").sum()
    canvas.headline(
        f"The first method is better in {supported} of {len(table)} comparisons, "
        f"over {kinds_in_words(table)}"
    )
    notes = {"title": _NOTES, "title_fontsize": 7, "fontsize": 7}
    canvas.figure.legend(handles=marks, loc="outside lower center", ncols=len(marks), **notes)
    return canvas.figure


def with_ledger_bounds(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the ledger's bounds and verdicts: those over draws where there are some."""
    by_draws = table["draws_verdict"].notna()
    columns = {name: table[f"draws_{name}"] for name in ("verdict", "low", "high")}
    return table.assign(
        **{name: values.where(by_draws, table[name]) for name, values in columns.items()}
    )


def largest_design(table: pd.DataFrame) -> pd.DataFrame:
    """The decided comparisons of the design with the most tasks."""
    table = with_ledger_bounds(table)
    table = table[table["verdict"].notna()]
    return table[table["tasks"] == table["tasks"].max()]


def difference_in_words(line: Mapping[Any, Any] | pd.Series) -> str:
    """A mean difference, and what the verdict says of the first method."""
    words = _WORDS[line["verdict"]][0].format(f"{line['margin']:g}")
    return f"{line['difference']:+.1f}: {words}".replace("-", "−")


def title_in_words(title: str) -> str:
    """A title whose abbreviations of the paper, such as V1, come after what they stand for."""
    return re.sub(r"(V\d), ([^−]*\w)", r"\2 (\1)", title)


def kinds_in_words(table: pd.DataFrame) -> str:
    """How many kinds of tasks the comparisons are over, and how many variants of these."""
    kinds = " or ".join(map(str, sorted({len(means_of_kinds(row)) for _, row in table.iterrows()})))
    tasks = int(table["tasks"].max())
    are_variants = tasks > max(len(row) for row in map(means_of_kinds, table.to_dict("records")))
    return f"{kinds} kinds of tasks{f', {tasks} variants' if are_variants else ''}"


def means_of_kinds(row: Mapping[Any, Any] | pd.Series) -> NDArray[np.float64]:
    """The mean difference of each kind of task in a comparison."""
    kinds = [kind_of(task) for task in row["task_names"]]
    return pd.Series(row["task_differences"]).groupby(kinds, sort=False).mean().to_numpy()


def draw_group(axis: Axes, table: pd.DataFrame) -> None:
    """Draw comparisons into axes, one row each; see :func:`draw_comparisons`."""
    heights = range(len(table))[::-1]
    for height, line in zip(heights, table.to_dict("records"), strict=True):
        _, color = _WORDS[line["verdict"]]
        axis.barh(height, 2 * line["margin"], left=-line["margin"], height=0.8, color=_MARGIN_COLOR)
        means = means_of_kinds(line)
        # Above the bounds, so that these do not hide them.
        axis.plot(means, height + 0.25 + 0 * means, ".", color=_KINDS_COLOR, ms=5, zorder=3)
        axis.plot([line["low"], line["high"]], [height] * 2, color=color, lw=2.5, zorder=4)
        axis.plot(line["difference"], height, "o", color=color, markersize=6, zorder=5)
    axis.axvline(0, color="#444444", linewidth=0.8, zorder=2)
    axis.set_yticks(heights, table["title"].map(title_in_words))
    axis.set_ylim(-0.6, len(table) - 0.4)
    axis.grid(visible=False, axis="y")
    axis.tick_params(axis="y", length=0)

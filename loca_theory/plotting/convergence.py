"""Figures of the toy experiment: learned spectra, losses, rates of recovery."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from loca_theory.plotting.canvas import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    Canvas,
    View,
    styled,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from loca_theory.convergence import ToyResult

_SNAPSHOTS = 5
# Searches to show next to one that fails, the first available one.
_PREFERRED = ("reselect", "annealed-pursuit", "cyclic-pursuit", "swap", "pursuit", "swap-raw")
_COLORS = {"coefficients-only": GREY, "central": RED, "reselect": BLUE}
_OTHERS = (GREEN, PINK, ORANGE, SKY, BLACK, "#b8860b", "#8c564b", "#1b9e9e")
_MARKERS = "osD^vP*Xh<>p"
# Losses are clipped to this range; the upper end counts as diverged.
_LEAST_LOSS, _MOST_LOSS = 1e-16, 1e6
# Up to this percentage there is room for a number to the right of its mark.
_RIGHTMOST = 90.0
# The number of diverged problems is printed if they are more than this fraction.
_MANY = 0.02
# Marks of the first and the last search of one size are this factor of the size apart.
_APART = 1.12
# The axis of steps is linear up to this step, then logarithmic.
_EARLY = 100
_CASES = ("recovered", "not recovered")
# What tells one panel from the others.
_KIND = ["interpretation", "components", "condition"]


def views(result: ToyResult) -> list[View]:
    """The pictures of the toy experiment: rates of recovery, and the course of single problems."""
    rows, traces = result.to_frame("rows"), result.to_frame("traces")
    return [
        View("recovery", "Problems solved", partial(draw_recovery, rows)),
        View("spectrum", "Spectra of single problems", partial(draw_spectrum, traces)),
        View("loss", "Loss of the same problems", partial(draw_loss, traces)),
    ]


@styled
def draw_spectrum(traces: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Spectra of single problems over the steps, one row per search, true locations framed.

    The rows show the first problem that the search recovers, if there is one, and the first that it
    does not recover; the latter is shown again under a better search if the study includes one.

    Args:
        traces: ``traces`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
        ax: Axes for a single panel; None for a new figure.
    """
    chosen = str(traces["chosen_by"].iloc[0])
    lines = [(case, chosen) for case in _CASES if case in set(traces["case"])]
    others = [name for name in _PREFERRED if name in set(traces["search"]) - {chosen}]
    if others and lines[-1][0] == "not recovered":
        lines.append(("not recovered", others[0]))
    steps = _snapshots(traces)
    titles = [*(f"step {step}" for step in steps), "truth"]
    size = (1.28 * len(titles) + 1.2, 1.5 * len(lines) + 0.35)
    canvas = Canvas.of(ax, size, len(lines), len(titles))
    for row, (case, search) in zip(canvas.axes, lines, strict=True):
        mine = traces[(traces["case"] == case) & (traces["search"] == search)]
        _draw_line(row, mine, steps)
        row[0].set_ylabel(f"{search}\nproblem {int(mine['problem'].iloc[0])}", fontsize=8)
    for axis, title in zip(canvas.axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    text = "Dots: components; frames: true locations; colour: coefficients (red positive, blue "
    text += "negative), saturated at the largest true coefficient"
    canvas.caption(text)
    return canvas.figure


def _snapshots(traces: pd.DataFrame) -> list[int]:
    """The first, the last and some intermediate steps, denser early on, when most happens."""
    steps = np.sort(traces.loc[traces["kind"] == "learned", "step"].unique())
    wanted = steps[-1] * np.linspace(0, 1, _SNAPSHOTS) ** 3
    nearest = [int(steps[np.abs(steps - step).argmin()]) for step in wanted]
    return list(dict.fromkeys(nearest))


def _draw_line(axes: list[Axes], trace: pd.DataFrame, steps: list[int]) -> None:
    size = int(trace["size"].iloc[0])
    truth = trace[trace["kind"] == "truth"]
    learned = trace[trace["kind"] == "learned"]
    limit = float(truth["coefficient"].abs().max())
    frames = [learned[learned["step"] == step] for step in steps] + [truth]
    for axis, frame in zip(axes, frames, strict=True):
        spectrum = np.zeros((size, size))
        np.add.at(spectrum, (frame["row"], frame["column"]), frame["coefficient"])
        axis.imshow(spectrum, cmap="RdBu_r", vmin=-limit, vmax=limit)
        # Dots also mark components whose coefficients are still zero.
        axis.plot(frame["column"], frame["row"], ".", color="#222222", markersize=2.5)
        for row, column in truth[["row", "column"]].to_numpy():
            corner = (column - 0.5, row - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#222222", linewidth=1.1))
        axis.set_xticks([])
        axis.set_yticks([])
        axis.grid(visible=False)
        axis.spines[:].set(visible=True, linewidth=0.6, color="#999999")


@styled
def draw_loss(traces: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Loss over the steps with learned and with fixed locations, one panel per problem.

    Args:
        traces: ``traces`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
        ax: Axes for a single panel; None for a new figure.
    """
    cases = [case for case in _CASES if case in set(traces["case"])]
    canvas = Canvas.of(ax, (3.6 * len(cases) + 0.4, 2.9), 1, len(cases), sharey=True)
    axes = canvas.axes[0]
    chosen = str(traces["chosen_by"].iloc[0])
    for axis, case in zip(axes, cases, strict=True):
        mine = traces[(traces["case"] == case) & (traces["kind"] == "learned")]
        colors = _colors(mine["search"].unique())
        for search, line in mine.groupby("search", sort=False):
            by_step = line.groupby("step")["loss"].first()
            loss = by_step.to_numpy(float).clip(_LEAST_LOSS, _MOST_LOSS)
            axis.plot(by_step.index, loss, color=colors[str(search)], label=str(search))
        axis.set_yscale("log")
        # Most changes happen in the first steps.
        axis.set_xscale("symlog", linthresh=_EARLY)
        axis.set_xlim(left=0)
        axis.set_title(f"problem {int(mine['problem'].iloc[0])}: {case} by {chosen}")
        axis.set_xlabel("step")
    axes[0].set_ylabel("loss / loss at ΔW = 0 (clipped at 1e-16)")
    canvas.legend(traces["search"].nunique())
    return canvas.figure


@styled
def draw_recovery(rows: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Fraction of problems solved, with exact intervals: against the size, or by search.

    Args:
        rows: ``rows`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
        ax: Axes for a single panel; None for a new figure.
    """
    if len(set(rows["size"])) > 1:
        return _draw_over_sizes(rows, ax)
    kinds = rows.groupby(_KIND, sort=False, dropna=False)
    searches = list(dict.fromkeys(rows["search"]))
    panel = (3.2 if len(kinds) > 1 else 5.0, 0.24 * len(searches) + 0.75)
    canvas = Canvas.grid(ax, len(kinds), 4, panel, (1.2, 0), sharey=True, sharex=True)
    for axis, (kind, mine) in zip(canvas.axes.flat, kinds, strict=False):
        heights = [searches.index(name) for name in mine["search"]]
        percent, errors = _percent(mine)
        axis.errorbar(percent[:, 0], heights, xerr=errors, fmt="o", color=BLUE, capsize=2, ms=4)
        axis.set_title(_title(kind, rows))
        many = _MANY * int(mine["problems"].max())
        for (found, low, high), diverged, y in zip(percent, mine["diverged"], heights, strict=True):
            # Print the number on that side of the interval where there is room.
            side, align = (high + 1.5, "left") if high < _RIGHTMOST else (low - 1.5, "right")
            words = f"{found:.1f}" + (f", {diverged} diverged" if diverged > many else "")
            axis.text(side, y, words, va="center", ha=align, fontsize=7)
        axis.set_ylim(len(searches) - 0.5, -0.5)
        axis.set_xlim(-3, 103)
    _label_lowest(canvas, len(kinds))
    for axis in canvas.axes[:, 0]:
        axis.set_yticks(range(len(searches)), searches)
    edge, count = int(rows["size"].iloc[0]), int(rows["problems"].max())
    text = f"problems solved, % (exact 95% intervals; {count} problems of {edge}×{edge})"
    if canvas.is_own:
        canvas.figure.supxlabel(text, fontsize=9)
    else:
        canvas.axes[0, 0].set_xlabel(text)
    return canvas.figure


def _draw_over_sizes(rows: pd.DataFrame, ax: Axes | None) -> Figure:
    kinds = rows.groupby(_KIND, sort=False, dropna=False)
    canvas = Canvas.grid(ax, len(kinds), 3, (3.4, 2.6), (0.6, 0.8), sharey=True, sharex=True)
    searches = list(dict.fromkeys(rows["search"]))
    colors = _colors(searches)
    sizes = sorted(rows["size"].unique())
    for axis, (kind, mine) in zip(canvas.axes.flat, kinds, strict=False):
        for k, name in enumerate(searches):
            line = mine[mine["search"] == name].sort_values("size")
            percent, errors = _percent(line)
            # Shift the searches so that no mark hides another.
            shift = _APART ** ((k - (len(searches) - 1) / 2) / max(len(searches) - 1, 1))
            axis.errorbar(line["size"] * shift, percent[:, 0], errors, ms=3.5, color=colors[name],
                          fmt=f"{_MARKERS[k % len(_MARKERS)]}-", label=name)  # fmt: skip
        axis.set_xscale("log")
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set_xticks([], minor=True)
        axis.set_title(_title(kind, rows))
        axis.set_xlabel("size K")
    _label_lowest(canvas, len(kinds))
    for axis in canvas.axes[:, 0]:
        axis.set_ylabel("problems solved, %")
    canvas.legend(5)
    return canvas.figure


def _percent(rows: pd.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Percentage of problems solved with the ends of its interval, and the distances to these."""
    percent = 100 * rows[["recovered", "low", "high"]].to_numpy()
    return percent, np.abs(percent[:, 1:] - percent[:, :1]).T


def _label_lowest(canvas: Canvas, count: int) -> None:
    """Label the x axis of the panels that have no other below them."""
    for axis in canvas.axes.flat[max(count - canvas.axes.shape[1], 0) : count]:
        axis.tick_params(labelbottom=True)


def _title(kind: tuple[object, ...], rows: pd.DataFrame) -> str:
    """The title of a panel: the settings in which it differs from the other panels."""
    interpretation, components, condition = kind
    is_gaussian = condition is None or condition != condition
    parts = {
        "interpretation": str(interpretation),
        "components": f"{components} components",
        "condition": "Gaussian weights" if is_gaussian else f"condition {condition:g}",
    }
    differing = [text for name, text in parts.items() if len(rows[name].drop_duplicates()) > 1]
    return ", ".join(differing) or f"{parts['components']}, {parts['condition']}"


def _colors(searches: Iterable[str]) -> dict[str, str]:
    """The colour of each search; the main searches have the same colour in every figure."""
    others = (name for name in searches if name not in _COLORS)
    return _COLORS | {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(others)}

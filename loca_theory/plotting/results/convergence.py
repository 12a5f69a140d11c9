"""Figures of the toy experiment: learned spectra and losses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from loca_theory.plotting.canvas import Canvas, NamedPicture, styled
from loca_theory.plotting.results.recovery import draw_recovery, search_label, search_looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.convergence import ToyResult

_SNAPSHOTS = 5
# Searches to show next to one that fails, the first available one.
_PREFERRED = ("reselect", "annealed-pursuit", "cyclic-pursuit", "swap", "pursuit", "swap-raw")
# Losses are clipped to this range; the upper end counts as diverged.
_LEAST_LOSS, _MOST_LOSS = 1e-16, 1e6
# The axis of steps is linear up to this step, then logarithmic.
_EARLY = 100
_CASES = ("recovered", "not recovered")


def pictures_of(result: ToyResult) -> list[NamedPicture]:
    """The pictures of the toy experiment: rates of recovery, and the course of single problems."""
    rows, traces = result.to_frame("rows"), result.to_frame("traces")
    return [
        NamedPicture("recovery", "Problems solved", partial(draw_recovery, rows)),
        NamedPicture("spectrum", "Spectra of single problems", partial(draw_spectrum, traces)),
        NamedPicture("loss", "Loss of the same problems", partial(draw_loss, traces)),
    ]


@styled
def draw_spectrum(traces: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Spectra of single problems over the steps, one row per search, true locations framed.

    The rows show the first problem that the search recovers, if there is one, and the first that it
    does not recover; the latter is shown again under a better search if the study includes one.

    ``traces``: ``traces`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
    """
    chosen = str(traces["chosen_by"].iloc[0])
    lines = [(case, chosen) for case in _CASES if case in set(traces["case"])]
    candidates = [name for name in _PREFERRED if name in set(traces["search"]) - {chosen}]
    if candidates and lines[-1][0] == "not recovered":
        lines.append(("not recovered", candidates[0]))
    steps = _snapshots(traces)
    titles = [*(f"step {step}" for step in steps), "truth"]
    size = (1.28 * len(titles) + 1.2, 1.5 * len(lines) + 0.35)
    canvas = Canvas.of(ax, size, len(lines), len(titles))
    for row, (case, search) in zip(canvas.axes, lines, strict=True):
        trace = traces[(traces["case"] == case) & (traces["search"] == search)]
        _draw_line(row, trace, steps)
        finds = "misses some" if (case, search) == ("not recovered", chosen) else "finds all"
        row[0].set_ylabel(f"{search_label(search)}\n{finds}", fontsize="small")
    for axis, title in zip(canvas.axes[0], titles, strict=True):
        axis.set_title(title, fontsize="small")
    canvas.headline("A search succeeds if its dots end in the frames, the true locations")
    numbers = traces.groupby("case", sort=False)["problem"].first()
    problems = ", ".join(f"problem {number}: {case}" for case, number in numbers.items())
    canvas.caption(
        "Coefficients, red positive, blue negative, up to the largest true one; "
        f"{problems} by {chosen}"
    )
    return canvas.figure


def _snapshots(traces: pd.DataFrame) -> list[int]:
    """The first, the last and some intermediate steps, denser early on, when most happens."""
    steps = np.sort(traces.loc[traces["kind"] == "learned", "step"].unique())
    targets = steps[-1] * np.linspace(0, 1, _SNAPSHOTS) ** 3
    nearest = [int(steps[np.abs(steps - step).argmin()]) for step in targets]
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
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
        axis.spines[:].set(visible=True, linewidth=0.6, color="#999999")


@styled
def draw_loss(traces: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Loss over the steps with learned and with fixed locations, one panel per problem.

    ``traces``: ``traces`` of a :class:`~loca_theory.convergence.study.ConvergenceStudy`.
    """
    cases = [case for case in _CASES if case in set(traces["case"])]
    canvas = Canvas.of(ax, (3.6 * len(cases) + 0.4, 2.9), 1, len(cases), sharey=True)
    axes = canvas.axes[0]
    chosen = str(traces["chosen_by"].iloc[0])
    for axis, case in zip(axes, cases, strict=True):
        learned = traces[(traces["case"] == case) & (traces["kind"] == "learned")]
        looks = search_looks(learned["search"].unique())
        for search, line in learned.groupby("search", sort=False):
            by_step = line.groupby("step")["loss"].first()
            loss = by_step.to_numpy(float).clip(_LEAST_LOSS, _MOST_LOSS)
            look, label = looks[str(search)], search_label(str(search))
            axis.plot(by_step.index, loss, color=look.color, linestyle=look.dashes, label=label)
        axis.set_yscale("log")
        # Most changes happen in the first steps.
        axis.set_xscale("symlog", linthresh=_EARLY)
        axis.set_xlim(left=0)
        verb = "finds" if case == "recovered" else "misses"
        axis.set(title=f"a problem whose locations {chosen} {verb}", xlabel="step of training")
    axes[0].set_ylabel("loss / loss at the start")
    canvas.headline("The loss falls to rounding (1e-16) once all locations are found")
    canvas.legend(traces["search"].nunique())
    return canvas.figure

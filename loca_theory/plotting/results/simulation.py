"""Figures of the reconstruction error against rank or size (the paper's sim_1 and sim_2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from loca_theory.expressivity.methods.bounds import Bound
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import METHODS
from loca_theory.expressivity.spending import off_budget
from loca_theory.plotting.canvas import Canvas, NamedPicture, styled
from loca_theory.plotting.lines import BAND, draw_lines
from loca_theory.plotting.looks import TITLES, in_order, key, looks_of, titles_of
from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.expressivity import SimulationResult

_PREFERRED = (Engine.EXACT, Engine.MONTE_CARLO, Engine.ASYMPTOTIC)
# Inches.
_PANEL, _SINGLE_PANEL = (3.7, 2.75), (6.0, 4.2)


def pictures_of(result: SimulationResult) -> list[NamedPicture]:
    """The picture of a simulation."""
    draw = partial(draw_errors, result.to_frame(), titles_of(result.manifest))
    return [NamedPicture("errors", "Error against rank or size", draw, ("methods", "ranks"))]


@styled
def draw_errors(
    table: pd.DataFrame, titles: Mapping[str, str] = TITLES, *, ax: Axes | None = None
) -> Figure:
    """Draw a table of :class:`~loca_theory.expressivity.simulation.Simulation`.

    If there are more sizes than ranks, there is one panel per rank and the size is the x axis;
    otherwise there is one panel per shape and the rank is the x axis. Each point is the exact error
    if the table has it, else the simulated one with a band of two standard errors, else the limit.
    Methods that coincide to a line's width share a label at the line's end.
    """
    table = _best(table)
    by_size = bool(table["K"].notna().all()) and table["K"].nunique() > table["r"].nunique()
    if by_size:
        x, label = "K", "matrix size K"
        panels = {f"r = {r}": rows for r, rows in table.groupby("r")}
    else:
        x, label = "r", "LoRA rank r"
        shapes = table.groupby(["p", "q"], sort=False)
        panels = {f"{p} × {q}": rows for (p, q), rows in shapes}
    panel = _PANEL if len(panels) > 1 else _SINGLE_PANEL
    canvas = Canvas.grid(ax, len(panels), 2, panel, sharex=by_size)
    looks = looks_of(table["method"])
    for axis, (title, rows) in zip(canvas.axes.flat, panels.items(), strict=False):
        names = in_order(rows["method"])
        lines = [(name, rows[rows["method"] == name]) for name in names]
        draw_lines(canvas, axis, lines, x, looks)
        if not by_size:
            axis.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 4, 8, 10]))
        axis.set_title(title)
    canvas.label(label, "relative error ‖W − Ŵ‖² / ‖W‖²")
    if words := _headline(table):
        canvas.headline(words)
    canvas.caption(_caption(table, titles))
    return canvas.figure


def _headline(table: pd.DataFrame) -> str:
    """The method with the smallest error at most ranks and shapes; "" of one method, or a tie."""
    bounds = [name for name, method in METHODS.items() if isinstance(method, Bound)]
    methods = table[~table["method"].isin(bounds)]
    errors = methods.pivot_table("error", ["p", "q", "r"], "method")
    if errors.shape[1] < 2:
        return ""
    best = errors.min(axis=1)
    counts = errors.eq(best, axis=0).sum()
    leaders = counts[counts == counts.max()]
    if len(leaders) > 1:
        return ""
    count = int(leaders.iloc[0])
    where = "at every rank" if count == len(errors) else f"at {count} of {len(errors)} budgets"
    name = options().label(str(leaders.index[0]))
    return f"On independent entries, {name} has the smallest error {where}"


def _caption(table: pd.DataFrame, titles: Mapping[str, str]) -> str:
    """The titles of the methods, how accurate their errors are, and what they spend."""
    sentences = [key(in_order(table["method"]), titles)]
    simulated = table[table["engine"] == Engine.MONTE_CARLO]
    if len(simulated):
        names, draws = ", ".join(in_order(simulated["method"])), int(simulated["draws"].max())
        reach = BAND * simulated["standard_error"].max()
        band = f"±2 standard errors at most ±{reach:.1g}" if reach > 0 else "no band"
        sentences.append(f"Simulated: {names} ({draws} draws; {band}).")
    spent = {str(name): off_budget(rows["spent"]) for name, rows in table.groupby("method")}
    if off := [f"{name} {spent[name]}" for name in in_order(spent) if spent[name]]:
        sentences.append(f"Methods that spend another budget: {', '.join(off)} of it.")
    return " ".join(sentences)


def _best(rows: pd.DataFrame) -> pd.DataFrame:
    """The row of the preferred engine for each shape, rank and method, in the given order.

    The preferred engine may change along a line: R, for example, is exact at some sizes only.
    """
    order = rows["engine"].map({engine.value: i for i, engine in enumerate(_PREFERRED)})
    best = rows.loc[order.sort_values().index].drop_duplicates(["p", "q", "r", "method"])
    return best.sort_index()

"""Figures of what rounding leaves of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, Canvas, styled
from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FORMATS = {
    "bfloat16": (RED, "-"),
    "float16": (BLUE, "--"),
    "float8_e4m3": (GREEN, "-."),
    "float8_e5m2": (ORANGE, ":"),
    "float32": (BLACK, "-"),
}
_METHODS = {
    "LoRA": (RED, "-"),
    "LoCA": (GREEN, "--"),
    "entries": (PINK, ":"),
    "LoRA inside cells": (BLUE, "-."),
}


@styled
def draw_laws(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw how many numbers change, and the error of the stored change, by format.

    ``table``: ``laws`` of a :class:`~loca_theory.rounding.study.RoundingStudy`.
    """
    canvas = Canvas.grid(ax, 2 if ax is None else 1, 2, (3.7, 2.75), (0, 0.35), sharex=True)
    columns = {"changed": "numbers that change", "error": "error of the stored change"}
    for axis, (column, title) in zip(canvas.axes.flat, columns.items(), strict=False):
        for name, rows in table.groupby("format", sort=False):
            color, dashes = _FORMATS.get(str(name), (GREY, "-"))
            axis.plot(rows["ratio"], rows[column], color=color, linestyle=dashes, label=str(name))
        axis.set_xscale("log")
        axis.set_ylim(0, 1.05)
        axis.set_title(title)
    canvas.label("changes relative to weights, σ/s", "fraction")
    canvas.headline("What rounding leaves of independent changes")
    canvas.legend(4)
    return canvas.figure


@styled
def draw_survival(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw the errors of methods on a rounded low-rank change, against its size in steps.

    ``table``: ``survival`` of a :class:`~loca_theory.rounding.study.RoundingStudy`.
    """
    canvas = Canvas.grid(ax, 2 if ax is None else 1, 2, (3.7, 2.75), (0, 0.35), sharex=True)
    columns = {"error": "relative to what is stored", "change_error": "relative to the change"}
    for axis, (column, title) in zip(canvas.axes.flat, columns.items(), strict=False):
        for name, rows in table.groupby("method", sort=False):
            method = str(name)
            color, dashes = _METHODS.get(method, (GREY, "-"))
            style = {"color": options().color(method, color), "linestyle": dashes}
            axis.plot(rows["steps"], rows[column], **style, label=options().label(method))
        axis.set_xscale("log")
        axis.set_ylim(0, 1.05)
        axis.set_title(title)
    canvas.label("median change in median steps of the weights", "relative squared error")
    errors = table.pivot_table("change_error", "steps", "method")
    gaps = errors["LoRA"] - errors["LoRA inside cells"]
    widest = errors.iloc[int(gaps.argmax())]
    canvas.headline(
        f"Of a change of {widest.name:g} rounding steps, LoRA misses {widest['LoRA']:.0%}, "
        f"LoRA inside the cells {widest['LoRA inside cells']:.0%}"
    )
    canvas.legend(4)
    return canvas.figure

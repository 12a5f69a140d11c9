"""Map of the best method under separable dependence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from scipy import interpolate, ndimage

from loca_theory.dependence.design import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.plotting.canvas import BLACK, Canvas, styled
from loca_theory.plotting.looks import LOOKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_METHODS = ("LoCA", "LoRA", "entries")
_TITLES = {"ar1": "AR(1) ⊗ AR(1)", "blocks": "exchangeable blocks", "scaled": "unequal variances"}
_PIXELS = 400
# Ratio of two errors from which the colour is strongest.
_LARGEST_LEAD = 3.0
# Smallest region, as a fraction of the panel: smaller ones are ties decided by chance.
_SMALLEST = 0.02
_RATIO_TICKS = {2.0**-k: f"1/{2**k}" for k in range(1, 12)}


@styled
def draw_separable_map(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Method with the smallest error under each separable structure, by parameter and r/K.

    The colour names the method and is the stronger the larger its lead, the error of the second
    best method over that of the best. Errors are interpolated between the parameters and ranks of
    the table.

    ``table``: ``rows`` of a :class:`~loca_theory.dependence.study.Study` with at least two
    ranks, two values of each parameter, and LoRA, LoCA and entries under ``same-draw``.
    """
    table = table[(table["protocol"] == Protocol.SAME_DRAW) & table["method"].isin(_METHODS)]
    groups = list(table.groupby("structure", sort=False))
    canvas = Canvas.of(ax, (3.1 * len(groups), 3.2), 1, len(groups), sharey=True)
    for axis, (structure, rows) in zip(canvas.axes[0], groups, strict=True):
        _draw_panel(axis, rows)
        axis.set_title(_TITLES.get(str(structure), str(structure)))
        parameter = STRUCTURES[str(structure)].parameter
        axis.set_xlabel("correlation ρ" if parameter == "rho" else f"{parameter} of the variances")
    canvas.axes[0, 0].set_ylabel("rank fraction r/K")
    canvas.headline("The method with the smallest error; darker where the next is further behind")
    canvas.caption(f"Darkest where the next error is {_LARGEST_LEAD:g} times as large.")
    return canvas.figure


def _draw_panel(axis: Axes, rows: pd.DataFrame) -> None:
    x, y, errors = _interpolated(rows)
    best, runner_up = errors.argsort(axis=0)[:2]
    first, second = np.sort(errors, axis=0)[:2]
    lead = second - first
    regions = np.bincount(best.ravel(), minlength=len(_METHODS)) / best.size
    best = np.where(regions[best] < _SMALLEST, runner_up, best)
    colors = np.array([to_rgb(LOOKS[method].color) for method in _METHODS])[best]
    weight = 0.1 + 0.5 * np.clip(lead / np.log(_LARGEST_LEAD), 0, 1)[..., None]
    axis.set_yscale("log", base=2)
    axis.set_xlim(x[0], x[-1])
    if y[0] < y[-1]:  # several ranks
        axis.set_ylim(y[0], y[-1])
    axis.pcolormesh(x, y, 1 - weight * (1 - colors), rasterized=True)
    if best.min() < best.max():
        axis.contour(x, y, best, [0.5, 1.5], colors=BLACK, linewidths=1.4)
    for k, method in enumerate(_METHODS):
        region = best == k
        if region.any():
            _label(axis, x, y, region, method, LOOKS[method].color)
    ticks = [tick for tick in _RATIO_TICKS if y[0] <= tick <= y[-1]]
    axis.set_yticks(ticks, [_RATIO_TICKS[tick] for tick in ticks])
    axis.grid(visible=False)


def _interpolated(rows: pd.DataFrame) -> tuple[NDArray, NDArray, NDArray]:
    """Fine values of the parameter and of r/K, and each method's log error on their grid."""
    tables = [
        rows[rows["method"] == method].pivot_table("error", "r", "value") for method in _METHODS
    ]
    values, ranks = np.sort(rows["value"].unique()), np.sort(rows["r"].unique())
    ratios = ranks / rows[["p", "q"]].to_numpy().min()
    x = np.linspace(values[0], values[-1], _PIXELS)
    y = np.geomspace(ratios[0], ratios[-1], _PIXELS)
    axes = (np.log(ratios), values)
    errors = interpolate.RegularGridInterpolator(axes, np.log(np.stack(tables, axis=-1)))
    # The ends of geomspace may lie outside by rounding.
    inside = np.clip(np.log(y), axes[0][0], axes[0][-1])
    return x, y, np.moveaxis(errors(tuple(np.meshgrid(inside, x, indexing="ij"))), -1, 0)


def _label(
    axis: Axes, x: NDArray, y: NDArray, region: NDArray[np.bool_], text: str, color: str
) -> None:
    """Write a label where the region is widest."""
    depth = ndimage.distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(depth.argmax(), depth.shape)
    outline = [withStroke(linewidth=2.5, foreground="#ffffff")]
    axis.text(
        x[column],
        y[row],
        text,
        color=color,
        fontsize="medium",
        weight="bold",
        ha="center",
        va="center",
        path_effects=outline,
    )

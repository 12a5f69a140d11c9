"""The phase diagram: who retains more, by the budget and by the leading singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.dependence.closed_forms import energy_retained_with_spike, limit_boundary
from loca_theory.dependence.design import Protocol
from loca_theory.expressivity.limits import coefficient_fraction, low_rank_fraction
from loca_theory.plotting.canvas import BLACK, Canvas, mark, styled
from loca_theory.plotting.looks import looks_of
from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from loca_theory.checkpoints import Analysis

# The fraction of the coefficients in the headline.
_EXAMPLE = 0.05


@styled
def draw_phase(
    crossings: pd.DataFrame | None = None,
    shape: tuple[int, int] = (1, 1),
    marks: pd.DataFrame | None = None,
    r: int | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Phase diagram: the better of LoRA and LoCA, from the singular values alone.

    Low rank retains the energy fraction of the r largest singular values, the height on the
    diagram. The line is what selection retains of a large matrix whose stable rank is large,
    whatever its singular values (:func:`~loca_theory.expressivity.limits.coefficient_fraction`).
    With crossings, three more things are drawn: the line of noise with one random spike, for which
    selection retains a little more; the crossings simulated at a finite size; independent entries.

    ``crossings``: those of a study of this shape with the structure ``spiked``. ``marks``: matrices
    to mark, at the fraction of the ``coefficients`` that the budget of rank r pays for and the
    ``fraction`` of the energy that low rank retains.
    """
    canvas, looks = Canvas.of(ax, (5.2, 4.2)), looks_of(("LoRA", "LoCA"))
    axis = canvas.axes[0, 0]
    right = 0.4 if marks is None else min(1.2 * float(marks["coefficients"].max()), 1.0)
    x = right * np.linspace(0, 1, 200) ** 2
    boundary = np.array([coefficient_fraction(value) for value in x])
    axis.plot(x, boundary, color=BLACK, label="both retain the same, if no direction dominates")
    axis.fill_between(x, boundary, 0, color=looks["LoCA"].color, alpha=0.12, lw=0)
    axis.fill_between(x, boundary, 1, color=looks["LoRA"].color, alpha=0.12, lw=0)
    if crossings is not None:
        _draw_spike(axis, crossings, shape)
    if marks is not None:
        _draw_marks(canvas, marks, r)
    else:
        energy = f"{coefficient_fraction(_EXAMPLE):.0%} of the energy"
        canvas.headline(
            f"At {_EXAMPLE:.0%} of the coefficients {options().label('LoRA')} retains more from "
            f"{energy}"
        )
    axis.set(xlim=(0, right), ylim=(0, 1))
    axis.set_xlabel("fraction of the coefficients in the budget")
    axis.set_ylabel(f"energy that {options().label('LoRA')} retains")
    text = {"transform": axis.transAxes, "fontsize": "medium", "ha": "right"}
    above = min(boundary[-1] + 0.05, 0.94)
    axis.text(
        0.97, above, f"{options().label('LoRA')} retains more", color=looks["LoRA"].color, **text
    )
    axis.text(
        0.97, 0.05, f"{options().label('LoCA')} retains more", color=looks["LoCA"].color, **text
    )
    canvas.caption(
        "LoRA retains the energy of the r largest singular values; of a K × K matrix, its budget "
        "has the fraction r/K of the coefficients."
    )
    canvas.legend(4 if crossings is None else 2, fontsize="x-small")
    return canvas.figure


def _draw_spike(axis: Axes, crossings: pd.DataFrame, shape: tuple[int, int]) -> None:
    """The boundary for noise with one spike, its simulated crossings, and noise alone."""
    smaller, aspect = min(shape), min(shape) / max(shape)
    spiked = crossings[crossings["structure"] == "spiked"]
    spiked = spiked[spiked["protocol"] == Protocol.SAME_DRAW].dropna(subset="crossing")
    # Of a p × q matrix the budget of rank r pays for the fraction r (p + q) / 2pq.
    ratios = 0.499 * np.linspace(0.03, 1, 80) ** 2
    fractions = ratios * (1 + aspect) / 2
    boundary = _with_spike([limit_boundary(ratio, aspect) for ratio in ratios], fractions)
    axis.plot(fractions, boundary, "--", color=BLACK, lw=1, label="boundary, noise with one spike")
    if len(spiked):
        x = spiked["r"].to_numpy(float) / smaller * (1 + aspect) / 2
        low, y, high = (_with_spike(spiked[name], x) for name in ("low", "crossing", "high"))
        size = f"K = {shape[0]}" if aspect == 1 else f"{shape[0]} × {shape[1]}"
        axis.errorbar(
            x,
            y,
            np.stack([y - low, high - y]),
            fmt="o",
            color=BLACK,
            ms=4,
            capsize=2,
            label=f"crossing with one spike, simulated, {size}",
        )
    low_rank = [low_rank_fraction(ratio, aspect) for ratio in ratios]
    label = f"{options().label('LoRA')} at independent entries"
    axis.plot(fractions, low_rank, ":", color="#666666", lw=1, label=label)


def _with_spike(strengths: Iterable[float], fractions: Iterable[float]) -> NDArray[np.float64]:
    """The energy that low rank retains of noise with one spike of each strength."""
    pairs = zip(strengths, fractions, strict=True)
    return np.array([energy_retained_with_spike(*pair) for pair in pairs])


def _draw_marks(canvas: Canvas, marks: pd.DataFrame, r: int | None) -> None:
    """The matrices by kind, and how many of them lie above the line."""
    for k, (label, rows) in enumerate(marks.groupby("label", sort=False)):
        color, marker = mark(k)
        style = {"ms": 4.5, "mew": 0, "color": color, "alpha": 0.85, "clip_on": False}
        axis = canvas.axes[0, 0]
        axis.plot(rows["coefficients"], rows["fraction"], marker, label=str(label), **style)
    low_rank = options().label("LoRA")
    above = (marks["fraction"] > marks["coefficients"].map(coefficient_fraction)).sum()
    canvas.headline(
        f"{above} of {len(marks)} matrices lie where {low_rank} retains more at r = {r}"
    )


def phase_marks(result: Analysis, r: int) -> pd.DataFrame:
    """Coordinates of the matrices on the phase diagram at the budget of rank r."""
    shapes = {matrix.name: matrix.shape for matrix in result.matrices}
    marks = [
        (result.coefficients_paid(shapes[error.name], r), 1 - error.error, error.kind)
        for error in result.errors
        if (error.method, error.r) == ("LoRA", r)
    ]
    return pd.DataFrame(marks, columns=["coefficients", "fraction", "label"])

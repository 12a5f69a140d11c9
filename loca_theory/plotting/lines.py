"""Lines of errors, with labels at their ends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import rcParams
from matplotlib.font_manager import FontProperties
from scipy.optimize import isotonic_regression

from loca_theory.plotting.looks import Look
from loca_theory.plotting.options import options, set_scales

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from loca_theory.plotting.canvas import Canvas

# Labels of lines whose names say too little, and of both bounds where they coincide.
_LABELS = {
    "printed line": "random locations",
    "upper bound": "upper bound of Fourier pairs",
    "lower bound": "lower bound of Fourier pairs",
}
_BOTH_BOUNDS = "bounds of Fourier pairs"
# Half-width of the band of a simulated line, in standard errors.
BAND = 2.0
# Characters in a line of a label, per inch of the axis to its left, and at least.
_LABEL, _SHORTEST_LABEL = 8, 14
# Distance of labels, in heights of their font.
_LABEL_GAP = 1.45
# Lines whose distance is a smaller fraction of the height of the axis look like one.
_LINE_WIDTH = 0.012


def draw_lines(
    canvas: Canvas,
    axis: Axes,
    lines: Iterable[tuple[str, pd.DataFrame]],
    x: str,
    looks: Mapping[str, Look],
    **marks: float,
) -> None:
    """Draw the errors of methods against a column, and label each line at its right end.

    The user's own axes, beside which there may be no room, get a legend.
    """
    drawn = [_draw_line(axis, rows, x, name, looks[name], **marks) for name, rows in lines]
    axis.margins(x=0.02)
    set_scales(axis)
    if canvas.is_own:
        width, height = canvas.figure.get_size_inches() * axis.get_position().size
        _label_ends(axis, drawn, float(width), float(height))
    else:
        axis.legend()


def _draw_line(
    axis: Axes,
    rows: pd.DataFrame,
    x: str,
    name: str,
    look: Look,
    alpha: float = 0.25,
    ms: float = 4,
) -> Line2D:
    """Draw a method's errors with a band of two standard errors.

    A single error is a mark.
    """
    rows = rows.sort_values(x)
    position, error = rows[x].to_numpy(float), rows["error"].to_numpy(float)
    marker = "o" if len(rows) == 1 else None
    style = {"color": look.color, "linestyle": look.dashes, "marker": marker, "ms": ms}
    label = options().label(name)
    label = _LABELS.get(name, name) if label == name else label
    (line,) = axis.plot(position, error, label=label, **style)
    band = BAND * rows["standard_error"].fillna(0.0).to_numpy(float)
    if band.any():
        axis.fill_between(position, error - band, error + band, color=look.color, alpha=alpha, lw=0)
    return line


def _label_ends(axis: Axes, lines: Iterable[Line2D], width: float, height: float) -> None:
    """Label lines at their right ends; such as coincide everywhere share a label.

    The axis has about this width and height, in inches.
    """
    font = FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points()
    line_height = _LABEL_GAP * font / 72 / height
    characters = max(int(_LABEL * width), _SHORTEST_LABEL)
    groups: list[list[Line2D]] = []
    for line in sorted(lines, key=lambda line: _heights(axis, line)[-1]):
        if groups and _coincide(axis, groups[-1][0], line):
            groups[-1].append(line)
        else:
            groups.append([line])
    ends = [float(np.asarray(group[0].get_ydata())[-1]) for group in groups]
    texts = [
        textwrap.fill(_shared_label([str(line.get_label()) for line in in_order]), characters)
        for in_order in (sorted(group, key=axis.lines.index) for group in groups)
    ]
    heights = [line_height * (1 + text.count("\n")) for text in texts]
    positions = label_heights(axis, ends, heights)
    for group, text, position in zip(groups, texts, positions, strict=True):
        axis.annotate(
            text,
            (1.0, position),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=font,
            color=group[-1].get_color(),
            annotation_clip=False,
        )


def _shared_label(labels: Sequence[str]) -> str:
    """The label of lines that coincide."""
    bounds = {_LABELS["upper bound"], _LABELS["lower bound"]}
    if bounds <= set(labels):
        labels = [_BOTH_BOUNDS, *(label for label in labels if label not in bounds)]
    return ", ".join(labels)


def _heights(axis: Axes, line: Line2D) -> NDArray[np.float64]:
    """Heights of a line's points, in fractions of the axis' height."""
    return heights_of(axis, np.asarray(line.get_ydata(), float))


def heights_of(axis: Axes, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Heights of values, in fractions of the axis' height."""
    axis.get_ylim()  # which scales the axis, if it has to be
    points = np.column_stack([np.ones_like(values), values])
    return axis.transAxes.inverted().transform(axis.transData.transform(points))[:, 1]


def _coincide(axis: Axes, first: Line2D, second: Line2D) -> bool:
    """Whether two lines are within a line's width of each other wherever both are."""
    (x1, y1), (x2, y2) = ((line.get_xdata(), _heights(axis, line)) for line in (first, second))
    _, i, j = np.intersect1d(x1, x2, return_indices=True)
    return len(i) > 0 and bool(np.abs(y1[i] - y2[j]).max() < _LINE_WIDTH)


def label_heights(
    axis: Axes, ends: Sequence[float], heights: float | Sequence[float]
) -> NDArray[np.float64]:
    """Where to label lines at increasing ends, as near as possible, so that no labels overlap.

    Ends are in the axis' data; positions and the heights of labels are fractions of the axis.
    """
    targets = heights_of(axis, np.array(ends, float))
    # Without the heights, the nearest increasing positions are an isotonic regression.
    sizes = np.broadcast_to(np.asarray(heights, float), len(targets))
    below = np.cumsum(sizes) - (sizes + sizes[:1]) / 2
    return isotonic_regression(targets - below).x + below if len(targets) else targets

"""Line styles of the methods, and labels and keys of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rcParams
from matplotlib.font_manager import FontProperties
from scipy.optimize import isotonic_regression

from loca_theory.expressivity import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from loca_theory.plotting.options import options, set_scales

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from loca_theory.plotting.canvas import Canvas


@dataclass(frozen=True)
class Look:
    """Colour and dashes of a line."""

    color: str
    dashes: str | tuple[int, tuple[int, ...]] = "-"


TITLES = {name: method.title for name, method in METHODS.items()}
# Dashes help in grey print.
LOOKS = {
    "LoRA": Look(RED),
    "printed line": Look(GREY, (0, (1, 1))),
    "random Fourier": Look(GREY, (0, (4, 1))),
    "random DCT": Look(GREY, (0, (4, 1, 1, 1))),
    "FourierFT": Look(BLACK, (0, (1, 2))),
    "upper bound": Look(SKY, (0, (3, 1))),
    "Fourier pairs": Look(BLUE, (0, (5, 1))),
    "lower bound": Look(SKY, (0, (1, 1))),
    "Fourier": Look(GREEN, (0, (4, 2))),
    "LoCA": Look(GREEN),
    "entries": Look(PINK, (0, (2, 2))),
    "rate-distortion": Look("#b8860b", (0, (6, 2))),
    "DoRA": Look(ORANGE, (0, (3, 1, 1, 1))),
    "VeRA": Look(ORANGE, (0, (1, 1))),
    # Linear families are grey and black, oracles green, and what has factors is orange or red.
    "WaveFT": Look(GREY),
    "WaveFT-PEFT": Look(BLACK, (0, (3, 1))),
    "SHiRA": Look(GREY, (0, (2, 2))),
    "Super-Tuning": Look(GREY, (0, (1, 2))),
    "SSH": Look(GREY, (0, (8, 2))),
    "sDCTFT": Look(GREY, (0, (6, 1, 1, 1))),
    "C3A": Look(BLACK),
    "MiSS": Look(BLACK, (0, (6, 2))),
    "LoRA-FA": Look(BLACK, (0, (8, 2))),
    "MiCA": Look(BLACK, (0, (2, 2))),
    "LoRA-XS": Look(BLACK, (0, (4, 1, 1, 1))),
    "TinyLoRA": Look(BLACK, (0, (1, 1))),
    # Rotations of the pretrained weights are blue.
    "OFT": Look(BLUE),
    "BOFT": Look(BLUE, (0, (2, 2))),
    "HRA": Look(BLUE, (0, (8, 2))),
    "RoAd": Look(BLUE, (0, (1, 1))),
    "PSOFT": Look(BLUE, (0, (4, 1, 1, 1))),
    "QWHA": Look(GREEN, (0, (1, 1))),
    "MaCP": Look(GREEN, (0, (6, 1, 1, 1))),
    "DCT-columns": Look(GREEN, (0, (8, 2))),
    "GraLoRA": Look(RED, (0, (4, 1))),
    "BD-LoRA": Look(RED, (0, (8, 2))),
    "LoKr": Look(RED, (0, (1, 1))),
    "LoHa": Look(PINK),
    "HiRA": Look(PINK, (0, (4, 1))),
    "GLoRA": Look(PINK, (0, (1, 1))),
    "Uni-LoRA": Look(RED, (0, (4, 1, 1, 1))),
    "VB-LoRA": Look(ORANGE, (0, (6, 2))),
    "RandLoRA": Look(ORANGE),
}
# Users' own methods get these in turn: all colours with the first dashes, then with the others.
_COLORS = ("#332288", "#aa4499", "#117733", "#882255", "#44aa99", "#999933")
_DASHES = ((0, (5, 1, 1, 1)), (0, (2, 1)), (0, (8, 2)))
_OWN_LOOKS = [Look(color, dashes) for dashes in _DASHES for color in _COLORS]
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


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods without duplicates, in the package's order; unknown names at the end."""
    order = {name: i for i, name in enumerate(METHODS)}
    return sorted(dict.fromkeys(names), key=lambda name: order.get(name, len(order)))


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """The line style of each method; users' own methods get styles of their own."""
    own_looks = cycle(_OWN_LOOKS)
    looks = {name: LOOKS.get(name) or next(own_looks) for name in in_order(names)}
    return {
        name: replace(look, color=options().color(name, look.color)) for name, look in looks.items()
    }


def titles_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the methods of a result by name, including those of the user's own methods."""
    return TITLES | manifest.get("grid", {}).get("titles", {})


def key(names: Iterable[str], titles: Mapping[str, str]) -> str:
    """A sentence that gives the title of each method whose name needs one."""
    entries = []
    for name in names:
        title, label = titles.get(name) or "", options().label(name)
        # A title that begins with the name needs no equation.
        entries.append(
            title if title.startswith(label) else f"{label}: {title}" if title else label
        )
    return f"{'; '.join(entries)}."


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

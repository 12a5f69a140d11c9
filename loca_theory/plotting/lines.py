"""Line styles of the methods, and labels and keys of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import isotonic_regression

from loca_theory.expressivity import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray


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
# Half-width of the band of a simulated line, in standard errors.
BAND = 2.0
_BETWEEN = "   "
# Characters in a line of a label at the right end.
_LABEL = 40


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods without duplicates, in the package's order; unknown names at the end."""
    order = {name: i for i, name in enumerate(METHODS)}
    return sorted(dict.fromkeys(names), key=lambda name: order.get(name, len(order)))


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """The line style of each method; users' own methods get styles of their own."""
    found = in_order(names)
    own = cycle(_OWN_LOOKS)
    return {name: LOOKS[name] if name in LOOKS else next(own) for name in found}


def titles_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the methods of a result by name, including those of the user's own methods."""
    return TITLES | manifest.get("grid", {}).get("titles", {})


def key_lines(names: Iterable[str], titles: Mapping[str, str], width: int) -> list[str]:
    """Lines of text that give the title of each method, of at most ``width`` characters each.

    A title continues on the next line only if it is longer than a line.
    """
    lines: list[str] = []
    for name in names:
        title = titles.get(name) or ""
        # A title that begins with the name needs no equation.
        entry = title if title.startswith(name) else f"{name} = {title}" if title else name
        if lines and len(lines[-1]) + len(_BETWEEN) + len(entry) <= width:
            lines[-1] += _BETWEEN + entry
        else:
            lines += textwrap.wrap(entry, width)
    return lines


def draw_lines(
    axis: Axes,
    lines: Iterable[tuple[str, pd.DataFrame]],
    x: str,
    looks: Mapping[str, Look],
    gap: float,
    **marks: float,
) -> None:
    """Draw the errors of methods against a column, and label each line at its right end.

    Labels are at least ``gap`` apart, a fraction of the axis' height.
    """
    ends = [(_draw_line(axis, rows, x, looks[name], **marks), name) for name, rows in lines]
    axis.margins(x=0.02)
    _label_ends(axis, ends, looks, gap)


def _draw_line(
    axis: Axes, rows: pd.DataFrame, x: str, look: Look, alpha: float = 0.25, ms: float = 4
) -> float:
    """Draw a method's errors with a band of two standard errors; return the right end's height.

    A single error is a mark.
    """
    rows = rows.sort_values(x)
    position, error = rows[x].to_numpy(float), rows["error"].to_numpy(float)
    marker = "o" if len(rows) == 1 else None
    axis.plot(position, error, color=look.color, linestyle=look.dashes, marker=marker, ms=ms)
    band = BAND * rows["standard_error"].fillna(0.0).to_numpy(float)
    if band.any():
        axis.fill_between(position, error - band, error + band, color=look.color, alpha=alpha, lw=0)
    return error[-1]


def _label_ends(
    axis: Axes, ends: Sequence[tuple[float, str]], looks: Mapping[str, Look], gap: float
) -> None:
    """Label lines at their right ends, given by height and name; such as end together share one."""
    low, high = axis.get_ylim()
    merged: list[tuple[float, list[str]]] = []
    for height, name in sorted(ends):
        if merged and height - merged[-1][0] < 0.012 * (high - low):
            merged[-1][1].append(name)
        else:
            merged.append((height, [name]))
    positions = label_heights(axis, [height for height, _ in merged], gap)
    for (_, names), position in zip(merged, positions, strict=True):
        text = textwrap.fill(", ".join(in_order(names)), _LABEL)
        axis.annotate(text, (1.0, position), xycoords="axes fraction", xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8,
                      color=looks[names[-1]].color, annotation_clip=False)  # fmt: skip


def label_heights(axis: Axes, heights: Sequence[float], gap: float) -> NDArray[np.float64]:
    """Where to label increasing heights: at distances of at least ``gap``, as near as possible.

    Heights are in the axis' data, labels and the gap in fractions of its height.
    """
    low, high = axis.get_ylim()
    wanted = (np.array(heights) - low) / (high - low)
    # Without the distances, the nearest increasing positions are an isotonic regression.
    distances = gap * np.arange(len(wanted))
    return isotonic_regression(wanted - distances).x + distances if len(wanted) else wanted

"""Line styles of the methods, and labels and keys of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.names import display_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Look:
    """Colour and dashes of a line."""

    color: str
    dashes: str | tuple[int, tuple[int, ...]] = "-"


TITLES = {name: method.title for name, method in METHODS.items()}
# Okabe and Ito's palette is readable for colour-blind people; dashes help in grey print.
LOOKS = {
    "R": Look("#d55e00"),
    "U": Look("#7f7f7f", (0, (1, 1))),
    "F1": Look("#7f7f7f", (0, (4, 1))),
    "V1": Look("#7f7f7f", (0, (4, 1, 1, 1))),
    "FourierFT": Look("#000000", (0, (1, 2))),
    "M1": Look("#56b4e9", (0, (3, 1))),
    "F2": Look("#0072b2", (0, (5, 1))),
    "M2": Look("#56b4e9", (0, (1, 1))),
    "F3": Look("#009e73", (0, (4, 2))),
    "D": Look("#009e73"),
    "S": Look("#cc79a7", (0, (2, 2))),
    "RD": Look("#b8860b", (0, (6, 2))),
    "DoRA": Look("#e69f00", (0, (3, 1, 1, 1))),
    "VeRA": Look("#e69f00", (0, (1, 1))),
    # Linear families are grey and black, oracles green, and what has factors is orange or red.
    "WaveFT": Look("#7f7f7f"),
    "WaveFT-PEFT": Look("#000000", (0, (3, 1))),
    "SHiRA": Look("#7f7f7f", (0, (2, 2))),
    "SSH": Look("#7f7f7f", (0, (8, 2))),
    "sDCTFT": Look("#7f7f7f", (0, (6, 1, 1, 1))),
    "C3A": Look("#000000"),
    "MiSS": Look("#000000", (0, (6, 2))),
    "LoRA-XS": Look("#000000", (0, (4, 1, 1, 1))),
    "QWHA": Look("#009e73", (0, (1, 1))),
    "MaCP": Look("#009e73", (0, (6, 1, 1, 1))),
    "GraLoRA": Look("#d55e00", (0, (4, 1))),
    "LoKr": Look("#d55e00", (0, (1, 1))),
    "LoHa": Look("#cc79a7"),
    "HiRA": Look("#cc79a7", (0, (4, 1))),
    "RandLoRA": Look("#e69f00"),
}
# Users' own methods get these colours in turn; each further round uses other dashes.
_COLORS = ("#332288", "#aa4499", "#117733", "#882255", "#44aa99", "#999933")
_DASHES = ((0, (5, 1, 1, 1)), (0, (2, 1)), (0, (8, 2)))
# Half-width of the band of a simulated line, in standard errors.
BAND = 2.0
_BETWEEN = "   "
# Characters in a line of a label at the right end.
_LABEL = 40


def in_order(names: Iterable[str]) -> list[str]:
    """Names of methods without duplicates, in the package's order; unknown names at the end."""
    known = list(METHODS)
    found = list(dict.fromkeys(names))
    return sorted(found, key=lambda name: known.index(name) if name in METHODS else len(known))


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """The line style of each method; users' own methods get styles of their own."""
    found = in_order(names)
    own = [name for name in found if name not in LOOKS]
    others = {
        name: Look(_COLORS[i % len(_COLORS)], _DASHES[i // len(_COLORS) % len(_DASHES)])
        for i, name in enumerate(own)
    }
    return {name: LOOKS.get(name) or others[name] for name in found}


def titles_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the methods of a result by name, including those of the user's own methods."""
    return TITLES | manifest.get("grid", {}).get("titles", {})


def key_lines(names: Iterable[str], titles: Mapping[str, str], width: int) -> list[str]:
    """Lines of text that give the title of each method, of at most ``width`` characters each.

    A title continues on the next line only if it is longer than a line.

    Args:
        names: Names of methods.
        titles: Their titles.
        width: Characters per line.
    """
    lines: list[str] = []
    for name in names:
        shown = display_name(name)
        entry = f"{shown} = {titles[name]}" if titles.get(name) else shown
        if lines and len(lines[-1]) + len(_BETWEEN) + len(entry) <= width:
            lines[-1] += _BETWEEN + entry
        else:
            lines += textwrap.wrap(entry, width)
    return lines


def label_ends(
    axis: Axes, ends: Sequence[tuple[float, str]], looks: Mapping[str, Look], gap: float
) -> None:
    """Label lines at their right ends; lines that end together share a label.

    Labels that would overlap are moved apart.

    Args:
        axis: The axes with the lines.
        ends: Height of each line's right end, and the line's name.
        looks: The styles of the lines.
        gap: The smallest distance of two labels, as a fraction of the axis' height.
    """
    low, high = axis.get_ylim()
    merged: list[tuple[float, list[str]]] = []
    for height, name in sorted(ends):
        if merged and height - merged[-1][0] < 0.012 * (high - low):
            merged[-1][1].append(name)
        else:
            merged.append((height, [name]))
    wanted = np.array([(height - low) / (high - low) for height, _ in merged])
    for (_, names), position in zip(merged, spread(wanted, gap), strict=True):
        axis.annotate(
            textwrap.fill(", ".join(map(display_name, in_order(names))), _LABEL),
            (1.0, position),
            xycoords="axes fraction",
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=looks[names[-1]].color,
            annotation_clip=False,
        )


def spread(wanted: np.ndarray, gap: float) -> np.ndarray:
    """Move increasing positions apart to distances of at least ``gap``, as little as possible."""
    positions = wanted.copy()
    # Neighbours that are too close form a block around the mean of their wanted positions. Blocks
    # that are then too close are merged (pool adjacent violators).
    blocks = [[i] for i in range(len(positions))]
    merged = True
    while merged:
        merged = False
        for block in blocks:
            offsets = gap * (np.arange(len(block)) - (len(block) - 1) / 2)
            positions[block] = wanted[block].mean() + offsets
        for first, second in pairwise(blocks):
            if positions[second[0]] - positions[first[-1]] < gap - 1e-12:
                first.extend(second)
                blocks.remove(second)
                merged = True
                break
    return positions

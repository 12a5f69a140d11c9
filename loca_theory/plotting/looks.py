"""Colours and dashes of the methods, their order and their titles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from loca_theory.expressivity import METHODS
from loca_theory.plotting.canvas import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY
from loca_theory.plotting.options import options


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

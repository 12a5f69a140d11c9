"""Names of methods as they are shown and stored, and the paper's letters, accepted as input too.

This module needs no other package, so that a command's help can list the names.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

LETTERS = {
    "R": "LoRA",
    "U": "printed line",
    "F1": "random Fourier",
    "V1": "random DCT",
    "M1": "upper bound",
    "F2": "Fourier pairs",
    "M2": "lower bound",
    "F3": "Fourier",
    "D": "LoCA",
    "S": "entries",
    "RD": "rate-distortion",
}
"""The name of a method by its letter: the paper's, or in the paper's manner."""

_FILE = Path(__file__).with_name("methods.toml")
TEXTS: dict[str, tuple[str, str]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""Title and publication of each method of the package, by its name."""
NAMES = tuple(TEXTS)
"""The names of the package's methods, in the order of tables and legends."""

DEFAULT_NAMES = ("LoRA", "FourierFT", "Fourier pairs", "LoCA")
"""The methods that ``simulate`` compares by default.

"Fourier pairs" is FourierFT with the best locations instead of random ones.
"""

_LETTER_OF = {name: letter for letter, name in LETTERS.items()}


def _folded(name: str) -> str:
    """A name as it is compared: letters and digits only, in lower case."""
    return "".join(filter(str.isalnum, name.casefold()))


_KNOWN = {_folded(name): name for name in NAMES} | {
    _folded(letter): name for letter, name in LETTERS.items()
}


def known_name(text: str) -> str:
    """The method that a name or letter stands for, in any case; an unknown one is returned."""
    return _KNOWN.get(_folded(text), text)


def seed_name(name: str) -> str:
    """The name of a method in the seeds of its draws, which never changes: its letter if any."""
    return _LETTER_OF.get(name, name)

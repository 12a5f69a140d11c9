"""Names of methods: the key in files, the name in tables and figures, and what a user may type.

The keys are the paper's letters and the published names. This module imports nothing, so that a
command's help can list the names.
"""

from __future__ import annotations

# Methods that are shown by their published names, which are their keys.
_PUBLISHED = (
    "DoRA", "VeRA", "WaveFT", "WaveFT-PEFT", "SHiRA", "Super-Tuning", "SSH", "sDCTFT", "C3A",
    "MiSS", "LoRA-FA", "MiCA", "LoRA-XS", "TinyLoRA", "OFT", "BOFT", "HRA", "RoAd", "PSOFT", "QWHA",
    "MaCP", "DCT-columns", "GraLoRA", "BD-LoRA", "LoKr", "LoHa", "HiRA", "GLoRA", "Uni-LoRA",
    "VB-LoRA", "RandLoRA",
)  # fmt: skip
DISPLAY_NAMES = {
    "R": "LoRA",
    "U": "printed line",
    "F1": "random Fourier",
    "V1": "random DCT",
    "FourierFT": "FourierFT",
    "M1": "upper bound",
    "F2": "Fourier pairs",
    "M2": "lower bound",
    "F3": "Fourier",
    "D": "LoCA",
    "S": "entries",
    "RD": "rate–distortion",
    **{name: name for name in _PUBLISHED},
}
"""The name of each method of the package by its key, in the order of tables and legends."""

DEFAULT_KEYS = ("R", "FourierFT", "F2", "D")
"""LoRA, FourierFT, the best Fourier pairs and LoCA, which ``simulate`` compares by default."""


def display_name(key: str) -> str:
    """The name of a method in tables, legends and messages; a user's own method has one name."""
    return DISPLAY_NAMES.get(key, key)


def _folded(name: str) -> str:
    """A name as it is compared: letters and digits only, in lower case."""
    return "".join(filter(str.isalnum, name.casefold()))


_KEYS = {_folded(name): key for key, shown in DISPLAY_NAMES.items() for name in (key, shown)}


def key_of(name: str) -> str:
    """The key that a name stands for, in any case of letters; an unknown name stands for itself."""
    return _KEYS.get(_folded(name), name)

"""A small pair of trained weights that comes with the package."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "demo"


def demo_pair() -> tuple[Path, Path]:
    """A base and a fine-tuned checkpoint to try things on, ``analyze(*demo_pair())``.

    They are a transformer with two layers that reads 8×8 pictures of handwritten digits, row by
    row: the base has learned to tell 0 to 4 apart, and was then fine-tuned, all of it, on 5 to 9.
    ``experiments/demo.py`` trains them, in seconds.

    Returns:
        The two safetensors files.
    """
    return _FOLDER / "base.safetensors", _FOLDER / "tuned.safetensors"

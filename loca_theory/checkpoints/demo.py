"""A small pair of trained weights that comes with the package."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "demo"


def demo_pair() -> tuple[Path, Path]:
    """Paths of a small base and fine-tuned checkpoint, for ``analyze(*demo_pair())``.

    The model is a transformer with two layers that reads 8×8 images of handwritten digits row by
    row. The base was trained to classify 0 to 4, and all its weights were then fine-tuned on 5 to
    9. ``experiments/demo.py`` of commit 04d2c93b trained both.

    Returns:
        The two safetensors files.
    """
    return _FOLDER / "base.safetensors", _FOLDER / "tuned.safetensors"

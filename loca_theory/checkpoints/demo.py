"""Two small pairs of trained checkpoints that come with the package."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent / "demo"


def demo_pair(*, merged: bool = False) -> tuple[Path, Path]:
    """Paths of a small pair of checkpoints, for ``analyze(*demo_pair())``.

    The model is a transformer with two layers that reads 8×8 images of handwritten digits row by
    row. The base was trained to classify 0 to 4, and all its weights were then fine-tuned on 5 to
    9. ``experiments/demo.py`` of commit 04d2c93b trained both. ``experiments/merged_demo.py`` of
    commit 7c565700 trained a LoRA of the base in bfloat16 on 5 to 9, and merged it.

    Args:
        merged: Whether the pair is the attention of the base in bfloat16, without and with the
            merged LoRA, for ``unmerge``.

    Returns:
        The two safetensors files.
    """
    names = ("before-merge", "merged") if merged else ("base", "tuned")
    return _FOLDER / f"{names[0]}.safetensors", _FOLDER / f"{names[1]}.safetensors"

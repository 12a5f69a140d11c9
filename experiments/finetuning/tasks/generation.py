"""Task ``generation``: bytes of docstrings, for a small transformer pretrained on source.

``draw`` 0 reads Python's standard library, others a random installed package. The splits
have no file in common, and the source that the model was pretrained on is that of the training
files, without docstrings.
"""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.docstrings import OTHER_PACKAGES, PACKAGES, root_of, without_docstrings
from experiments.finetuning.tasks import Split
from experiments.finetuning.tasks.transformer import small_transformer
from loca_theory.errors import ResourceError

BATCH = 16  # of the pretraining
_BYTES = 256
_EXCLUDED = ("test", "site-packages", "idlelib", "lib2to3", "encodings")
_VALIDATION, _TEST = 0.15, 0.25


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of docstring bytes, and source without docstrings to pretrain a model on."""
    length = chosen["length"]
    source, words = "", {}
    for split, files in _files(chosen["draw"], chosen.get("files")).items():
        separated = [without_docstrings(path) for path in files]
        words[split] = "\n\n".join(text for _, texts in separated for text in texts)
        if split == "train":
            source = "\n".join(text for text, _ in separated)
    splits = {}
    for split, text in words.items():
        blocks = _blocks(text, length)
        order = torch.randperm(len(blocks), generator=torch.Generator().manual_seed(0))
        blocks = blocks[order[: None if split == "train" else chosen[split]]]
        splits[split] = {"inputs": blocks, "labels": blocks}
    pretraining = _blocks(source, length)
    if min(len(pretraining), *(len(split["labels"]) for split in splits.values())) == 0:
        raise ResourceError(
            f"{_root(chosen['draw'])} has too little source or too few docstrings for a block of "
            f"{length} bytes in each split; use Python and packages with their sources"
        )
    return splits, {"inputs": pretraining, "labels": pretraining}


def _root(draw: int) -> Path:
    """Folder of the standard library, or of a random package."""
    if draw == 0:
        return Path(sysconfig.get_paths()["stdlib"])
    return root_of(random.Random(draw).choice(PACKAGES + OTHER_PACKAGES))


def _files(draw: int, limit: int | None) -> dict[str, list[Path]]:
    root = _root(draw)
    paths = [
        path
        for path in sorted(root.rglob("*.py"))
        if not any(part in path.relative_to(root).as_posix() for part in _EXCLUDED)
    ]
    random.Random(draw).shuffle(paths)
    paths = paths[:limit]
    first = round(_VALIDATION * len(paths))
    second = first + round(_TEST * len(paths))
    return {"validation": paths[:first], "test": paths[first:second], "train": paths[second:]}


def model(chosen: dict[str, Any]) -> nn.Module:
    """A randomly initialised model (torch's global generator); the caller loads weights."""
    return small_transformer(chosen, _BYTES, vocabulary=_BYTES, causal=True)


def _blocks(text: str, length: int) -> torch.Tensor:
    values = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(torch.int64)
    count = len(values) // length
    return values[: count * length].view(count, length)

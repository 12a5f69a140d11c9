"""Tasks of texts: which package a docstring or the source of a function is from.

A small transformer was pretrained to tell the docstrings of other packages apart. ``draw`` 0
has fixed halves of the packages, others random ones. Tokens are hashed words, names of packages are
masked, and the splits have no file in common.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import torch
from torch import nn

from experiments.docstrings import (
    OTHER_PACKAGES,
    PACKAGES,
    Example,
    docstrings_in,
    functions_in,
    splits,
)
from experiments.finetuning.tasks import SPLITS, Split
from experiments.finetuning.tasks.transformer import small_transformer
from loca_theory.errors import ResourceError

_READERS = {"docstrings": docstrings_in, "functions": functions_in}
BATCH = 64  # of the pretraining
_FRACTIONS = (0.15, 0.25)
_WORD = re.compile("[A-Za-z]+")
_PADDING = 0


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits, and docstrings of other packages to pretrain a model on."""
    classes, pretraining = _halves(chosen["draw"])
    options = {"most_files": chosen.get("files"), "masked": (*PACKAGES, *OTHER_PACKAGES)}
    read = _READERS[chosen["texts"]]
    parts = splits(chosen["draw"], _FRACTIONS, packages=classes, read=read, **options)
    encoded: dict[str, Split] = {}
    seen: set[tuple[int, ...]] = set()
    limits = {"validation": chosen["validation"], "test": chosen.get("test")}
    for name, part in zip(SPLITS, parts, strict=True):
        encoded[name] = _encoded(part, chosen, seen, limits.get(name))
        if not len(encoded[name]["labels"]):
            raise ResourceError(
                f"the installed packages have no texts for the {name} set; install "
                f"{', '.join(classes)} with their source"
            )
    (examples,) = splits(chosen["draw"], (), packages=pretraining, **options)
    return encoded, _encoded(examples, chosen, seen)


def tokens(text: str, length: int, vocabulary: int) -> tuple[int, ...]:
    """Hash the first words of a text to numbers from 1 on; 0 fills up a short text."""
    words = _WORD.findall(text)[:length]
    hashes = [1 + crc32(word.lower().encode()) % (vocabulary - 1) for word in words]
    return (*hashes, *[_PADDING] * (length - len(hashes)))


def _encoded(
    part: Sequence[Example],
    chosen: dict[str, Any],
    seen: set[tuple[int, ...]],
    limit: int | None = None,
) -> Split:
    """Tokens and labels of the first texts that are not in ``seen``; adds them to it."""
    rows: list[tuple[int, ...]] = []
    labels: list[int] = []
    for text, label in part:
        row = tokens(text, chosen["length"], chosen["vocabulary"])
        if row not in seen and len(rows) != limit:
            seen.add(row)
            rows.append(row)
            labels.append(label)
    return {
        "inputs": torch.tensor(rows, dtype=torch.int64),
        "labels": torch.tensor(labels, dtype=torch.int64),
    }


def model(chosen: dict[str, Any]) -> nn.Module:
    """A randomly initialised model (torch's global generator); the caller loads weights."""
    return small_transformer(chosen, len(PACKAGES), vocabulary=chosen["vocabulary"])


def _halves(draw: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The packages to tell apart, and as many others to pretrain on."""
    names = [*PACKAGES, *OTHER_PACKAGES]
    if draw:
        random.Random(draw).shuffle(names)
    return tuple(names[: len(PACKAGES)]), tuple(names[len(PACKAGES) :])

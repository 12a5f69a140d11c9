"""Prepared tasks on disk and in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder, write_atomically

Split = dict[str, torch.Tensor]
"""Examples of a split as arguments of the model; the first dimension is that of the examples."""

SPLITS = ("train", "validation", "test")
_DATA, _MODEL, _ABOUT = "data.safetensors", "model.safetensors", "about.json"


@dataclass(frozen=True)
class Prepared:
    """A prepared task."""

    folder: Path
    task: str
    settings: Mapping[str, Any]  # settings that it was prepared with
    digest: str  # hash of data and pretrained weights


def stored(folder: Path, task: str, key: Mapping[str, Any]) -> Prepared | None:
    """The task as an earlier run prepared it with the same settings; None if missing or damaged."""
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if about["key"] != json.loads(json.dumps(key)) or about["digest"] != digest_of(folder):
            return None
        return Prepared(folder, task, about["key"], about["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(
    folder: Path, task: str, key: Mapping[str, Any], splits: Mapping[str, Split], model: Split
) -> Prepared:
    """Store a prepared task."""
    writable_folder(folder)
    data = {
        f"{split}.{name}": tensor.detach().clone().contiguous()
        for split, tensors in splits.items()
        for name, tensor in tensors.items()
    }
    write_atomically(folder / _DATA, lambda path: save_file(data, path))
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.items()}
    write_atomically(folder / _MODEL, lambda path: save_file(weights, path))
    digest = digest_of(folder)
    text = json.dumps({"key": dict(key), "digest": digest}, indent=1) + "\n"
    write_atomically(folder / _ABOUT, lambda path: path.write_text(text, encoding="utf-8"))
    return Prepared(folder, task, key, digest)


@lru_cache(maxsize=2)
def load(folder: Path, digest: str) -> tuple[dict[str, Split], Split]:
    """Load the splits and the state of the pretrained model; the last two tasks stay in memory."""
    try:
        if digest_of(folder) != digest:
            msg = f"{folder} changed since it was prepared; delete it and run the command again"
            raise ResourceError(msg)
        data, model = load_file(folder / _DATA), load_file(folder / _MODEL)
    except (OSError, SafetensorError) as error:
        msg = f"{folder} cannot be read ({type(error).__name__}); delete it and run again"
        raise ResourceError(msg) from error
    splits: dict[str, Split] = {split: {} for split in SPLITS}
    for name, tensor in data.items():
        split, _, key = name.partition(".")
        splits[split][key] = tensor
    return splits, model


def digest_of(folder: Path) -> str:
    """Hash of data and weights."""
    digest = hashlib.sha256()
    for name in (_DATA, _MODEL):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:32]


def random_batches(
    total: int, most: int | None, size: int, rng: np.random.Generator
) -> Iterator[torch.Tensor]:
    """Indices of batches of at most so many random examples, one pass after the other."""
    mine = rng.permutation(total)[:most]
    if size > len(mine):
        msg = f"batch={size} exceeds the {len(mine)} training examples; use a smaller batch"
        raise InvalidArgumentError(msg)
    while True:
        order = rng.permutation(mine)
        for start in range(0, len(order) - size + 1, size):
            yield torch.from_numpy(order[start : start + size])

"""Write adapters to folders, and check which files there an extraction wrote and may replace."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.sizing.adapter_size import BETTER, TITLES
from loca_theory.checkpoints.weights.checkpoint import read_json
from loca_theory.checkpoints.weights.files import SafetensorsCheckpoint
from loca_theory.checkpoints.weights.sources import ADAPTER_CONFIG
from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import write_atomically

WEIGHTS, README = "adapter_model.safetensors", "README.md"
_WITH_WEIGHTS = (README, ADAPTER_CONFIG)
# Files that hold a model or a part of one, and those that an adapter would replace.
_OF_MODELS = r"config\.json|.*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|gguf|onnx|index\.json)"
_REPLACED = r"(?i:readme\.md|adapter_config\.json)"


@dataclass(frozen=True)
class Adapter:
    """An adapter as PEFT stores it.

    Attributes:
        tensors: Its parameters, under the names that PEFT gives them.
        config: Its configuration.
    """

    tensors: Mapping[str, torch.Tensor]
    config: Mapping[str, Any]


def check_folder(folder: Path, method: str) -> Path:
    """Check that writing adapters below this folder would not replace or disturb other files.

    An adapter is written to a folder in it that is named after the method. If that holds the
    weights of a model, an adapter beside them would be loaded on top of them. An adapter or a
    README is replaced only if an extraction wrote it and it has not been changed since.
    """
    for one in TITLES:
        if method == one or (method == "best" and one in BETTER):
            _check_one(folder / one)
    return folder


def _check_one(folder: Path) -> None:
    ours = _written(folder / WEIGHTS)
    foreign = [one for one in folder.iterdir() if one.name not in ours] if folder.is_dir() else []
    # Report weights first: if there are any, moving only a README away would not help.
    found = [
        name
        for pattern in (_OF_MODELS, _REPLACED)
        for name in sorted(path.name for path in foreign)
        if re.fullmatch(pattern, name)
    ]
    if found:
        msg = f"{folder} holds {found[0]}, which no extraction wrote or which was changed since: "
        msg += "an adapter there would replace it or be loaded on top of it; choose a new folder"
        raise ResourceError(msg)


def write_adapter(folder: Path, adapter: Adapter, card: str) -> list[Path]:
    """Write the weights, the card and the configuration of an adapter.

    The header of the weights file holds a digest of each other file of the adapter, so that
    :func:`check_folder` can recognise these files.
    """
    texts = {README: card, ADAPTER_CONFIG: json.dumps(adapter.config, indent=2) + "\n"}
    contents = {name: text.encode() for name, text in texts.items()}
    header = {"format": "pt", **{name: digest(content) for name, content in contents.items()}}
    # The weights first: if the process is killed while it writes, no file is left whose digest is
    # not in the header of the weights.
    weights = folder / WEIGHTS
    write_atomically(weights, lambda path: _save(adapter.tensors, path, header))
    for name, content in contents.items():
        write_atomically(folder / name, lambda path, content=content: path.write_bytes(content))
    return [weights, *(folder / name for name in contents)]


def read_adapter(folder: Path) -> Adapter:
    """Load an adapter."""
    stored = SafetensorsCheckpoint({folder / WEIGHTS: None})
    tensors = {name: stored.load(name) for name in stored.entries}
    return Adapter(tensors, read_json(folder / ADAPTER_CONFIG))


def remove_adapter(folder: Path) -> None:
    """Delete the unchanged files of an adapter that an extraction wrote, the weights last."""
    ours = _written(folder / WEIGHTS)
    for name in sorted(ours, key=lambda name: name == WEIGHTS):
        (folder / name).unlink(missing_ok=True)


def _save(tensors: Mapping[str, torch.Tensor], path: Path, header: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, header)
    except SafetensorError as error:  # also what the system refused, such as room on the disk
        raise OSError(str(error)) from error


def _written(weights: Path) -> set[str]:
    """Names of the unchanged files that were written together with an adapter's weights.

    The set is empty if no extraction wrote the weights.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as tensors:
            header = tensors.metadata() or {}
    except (SafetensorError, OSError):
        return set()
    if not header.keys() >= set(_WITH_WEIGHTS):
        return set()
    files = [path for name in _WITH_WEIGHTS if (path := weights.with_name(name)).is_file()]
    same = {path.name for path in files if digest(path.read_bytes()) == header[path.name]}
    return {weights.name, *same}


def digest(content: bytes) -> str:
    """SHA-256 digest of a file's content."""
    return hashlib.sha256(content).hexdigest()

"""The folder of an extracted adapter: what was written there, and what must not be replaced."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from loca_theory.checkpoints.sources import ADAPTER_CONFIG
from loca_theory.errors import ResourceError

WEIGHTS, README = "adapter_model.safetensors", "README.md"
_WITH_WEIGHTS = (README, ADAPTER_CONFIG)
# What holds a model, or part of one.
_OF_MODELS = re.compile(
    r"config\.json|.*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|gguf|onnx|index\.json)"
)


def check_folder(folder: Path) -> Path:
    """Make sure that an adapter in this folder replaces and disturbs nothing.

    Beside the weights of a model an adapter would be loaded on top of them. An adapter of another
    maker is not replaced, nor is one that was changed since an extraction wrote it, nor a README.

    Args:
        folder: Where an adapter shall be written; it need not exist.

    Returns:
        The folder.

    Raises:
        ResourceError: it holds part of a model, or an adapter or README that no extraction wrote.
    """
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    ours = _written(folder / WEIGHTS) if WEIGHTS in present else set()
    foreign = [name for name in present if name not in ours]
    names = {name.casefold() for name in _WITH_WEIGHTS}
    # Weights first: a README that is moved away makes no room beside them.
    found = [name for name in foreign if _OF_MODELS.fullmatch(name)]
    found += [name for name in foreign if name.casefold() in names]
    if found:
        msg = f"{folder} holds {found[0]}, which is not as an extraction wrote it: an adapter "
        msg += "there would replace it or be loaded on top of it; choose a new folder"
        raise ResourceError(msg)
    return folder


def _written(weights: Path) -> set[str]:
    """Names of the files that were written together with an extracted adapter's weights.

    Files that were changed since are not among them, and none is beside the weights of others.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(weights, framework="pt") as tensors:
            header = tensors.metadata() or {}
    except (SafetensorError, OSError):
        return set()
    if not header.keys() >= set(_WITH_WEIGHTS):
        return set()
    files = (weights.with_name(name) for name in _WITH_WEIGHTS)
    same = {
        path.name
        for path in files
        if path.is_file() and digest(path.read_bytes()) == header[path.name]
    }
    return {weights.name, *same}


def digest(content: bytes) -> str:
    """By which a file is known again."""
    return hashlib.sha256(content).hexdigest()

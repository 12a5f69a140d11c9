"""Check which files of an adapter folder an extraction wrote and may replace."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from loca_theory.checkpoints.sources import ADAPTER_CONFIG
from loca_theory.errors import ResourceError

WEIGHTS, README = "adapter_model.safetensors", "README.md"
_WITH_WEIGHTS = (README, ADAPTER_CONFIG)
# Files that hold a model or a part of one.
_OF_MODELS = re.compile(
    r"config\.json|.*\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|gguf|onnx|index\.json)"
)


def check_folder(folder: Path) -> Path:
    """Check that writing an adapter to this folder would not replace or disturb other files.

    If the folder holds the weights of a model, an adapter beside them would be loaded on top of
    them. An adapter or a README is replaced only if an extraction wrote it and it has not been
    changed since.

    Args:
        folder: Folder for the adapter; it need not exist.

    Returns:
        The folder.

    Raises:
        ResourceError: the folder holds part of a model, or an adapter or README that no extraction
            wrote or that was changed since.
    """
    present = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    ours = _written(folder / WEIGHTS) if WEIGHTS in present else set()
    foreign = [name for name in present if name not in ours]
    names = {name.casefold() for name in _WITH_WEIGHTS}
    # Report weights first: if there are any, moving only a README away would not help.
    found = [name for name in foreign if _OF_MODELS.fullmatch(name)]
    found += [name for name in foreign if name.casefold() in names]
    if found:
        msg = f"{folder} holds {found[0]}, which no extraction wrote or which was changed since: "
        msg += "an adapter there would replace it or be loaded on top of it; choose a new folder"
        raise ResourceError(msg)
    return folder


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
    files = (weights.with_name(name) for name in _WITH_WEIGHTS)
    same = {
        path.name
        for path in files
        if path.is_file() and digest(path.read_bytes()) == header[path.name]
    }
    return {weights.name, *same}


def digest(content: bytes) -> str:
    """SHA-256 digest of a file's content."""
    return hashlib.sha256(content).hexdigest()

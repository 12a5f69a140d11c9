"""Open checkpoints of any kind: files, folders, shards, hub names, and weights in memory.

No file can execute code when it is loaded, and tensors are read only when they are loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeGuard, Union

import torch

from loca_theory.checkpoints.weights.checkpoint import (
    Checkpoint,
    DamagedError,
    is_array,
    one_line,
    read_json,
    tensors_in_memory,
)
from loca_theory.checkpoints.weights.files import PICKLES, Shards, is_pickled, open_file
from loca_theory.checkpoints.weights.quantised import QuantisedCheckpoint
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.transforms.inputs import TensorLike

Source: TypeAlias = Union[
    str, os.PathLike[str], Mapping[str, "TensorLike"], "torch.nn.Module", "TensorLike"
]
"""A path or ``hub:`` name, a state dict, a module, or one matrix."""

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
ADAPTER_CONFIG = "adapter_config.json"
_CONFIG = "config.json"
_INDEX = ".index.json"
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w.-]+)?")

_FILES = ["*.safetensors", "*.safetensors.index.json", "adapter_config.json", "config.json"]


def is_path(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a source is a path, or a name on the hub."""
    return isinstance(source, str | os.PathLike)


def describe(source: Source) -> str:
    """Describe a source for the manifest."""
    if is_path(source):
        return os.fspath(source)
    kind = type(source).__name__
    return f"{kind} {'x'.join(map(str, source.shape))}" if is_array(source) else kind


def open_checkpoint(source: Source) -> Checkpoint:
    """Open a checkpoint of full weights.

    A ``.safetensors`` file; a PyTorch file of any name that loads with ``weights_only=True``, also
    a trainer's, of which the model's tensors are taken; a folder with
    ``model.safetensors``, ``pytorch_model.bin`` or either with an index of shards;
    ``hub:org/name[@rev]``; or a state dict, a module or one matrix in memory.

    Weights in FP8 or INT8 are loaded times the scales that are stored with them.
    """
    if not is_path(source):
        return QuantisedCheckpoint(tensors_in_memory(source))
    path = resolve(source)
    if path.is_file():
        return _open_file(path)
    for name in (SAFETENSORS, TORCH):
        if (path / name).is_file():
            return _open_file(path / name)
        if (path / f"{name}{_INDEX}").is_file():
            return _open_sharded(path / f"{name}{_INDEX}")
    candidates = sorted(path.glob("*.safetensors"))
    if len(candidates) == 1:
        return _open_file(candidates[0])
    msg = f"{path} holds no {SAFETENSORS}, no {TORCH} and no index of shards; pass the file itself"
    raise InvalidArgumentError(msg)


def resolve(source: str | os.PathLike[str]) -> Path:
    """Path of a source; a ``hub:`` name is downloaded first."""
    text = os.fspath(source)
    if text.startswith("hub:"):
        return download(text.removeprefix("hub:"))
    path = Path(text).expanduser()
    if not text or not path.exists():
        msg = f"there is no file or folder {text or 'without a name'}"
        if _HUB_NAME.fullmatch(text) and path.suffix not in (".safetensors", *PICKLES):
            msg += f"; write hub:{text} if it is on the hub"
        raise InvalidArgumentError(msg)
    return path


def _open_file(path: Path) -> Checkpoint:
    if is_pickled(path) is None:
        msg = f"{path} is neither a .safetensors nor a PyTorch file ({', '.join(PICKLES)})"
        raise InvalidArgumentError(msg)
    return _with_config(open_file(path), path.parent)


def _open_sharded(index: Path) -> Checkpoint:
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(one, str) for one in shards.values()):
        msg = f'{index} has no "weight_map" from names to files'
        raise DamagedError(msg)
    names_in: dict[Path, list[str]] = {}
    for name, file in shards.items():
        if Path(file).name != file:
            msg = f"{index} names the file {file!r} outside its own folder"
            raise DamagedError(msg)
        names_in.setdefault(index.parent / file, []).append(name)
    return _with_config(Shards(names_in), index.parent)


def _with_config(tensors: Checkpoint, folder: Path) -> Checkpoint:
    """Tensors with their scales and the configuration of the model in a folder, if it is valid."""
    if (folder / _CONFIG).is_file():
        with suppress(ResourceError):
            tensors.config = read_json(folder / _CONFIG)
    return QuantisedCheckpoint(tensors)


def download(name: str) -> Path:
    """Fetch the weights of ``org/name[@revision]`` (safetensors only) into the hub's own cache."""
    repository, _, revision = name.partition("@")
    if "/" not in repository or not _HUB_NAME.fullmatch(repository):
        msg = f"hub:{name} does not name a repository; write hub:org/name or hub:org/name@revision"
        raise InvalidArgumentError(msg)
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        msg = "reading from the hub needs huggingface_hub: pip install 'loca-theory[hub]'"
        raise ResourceError(msg) from error
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=_FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        msg = f"hub:{name} cannot be fetched ({one_line(error)}); download it yourself and pass "
        msg += "its folder"
        raise ResourceError(msg) from error

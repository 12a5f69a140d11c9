"""Open checkpoints of any kind: files, folders, shards, hub names, and weights in memory.

No file can execute code when it is loaded, and tensors are read only when they are loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeGuard, Union

import torch

from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    any_error_as,
    read_json,
)
from loca_theory.checkpoints.source.composed import ComposedCheckpoint
from loca_theory.checkpoints.source.files import Shards, is_pickled, open_file
from loca_theory.checkpoints.source.memory import is_array, tensors_in_memory
from loca_theory.checkpoints.source.paths import HUB, HUB_NAME, PICKLES, existing_path
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
# Files that a message names.
_NAMED = 3
_INDEX = ".index.json"
_SHARD = re.compile(r"-\d+-of-(\d+)\.")

_FILES = [
    *("*.safetensors", "*.safetensors.index.json", "adapter_config.json", "config.json"),
    "modules.json",
]


def is_path(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a source is a path, or a name on the hub."""
    return isinstance(source, str | os.PathLike)


def describe(source: Source) -> str:
    """Describe a source for the manifest."""
    if is_path(source):
        return os.fspath(source)
    kind = type(source).__name__
    return f"{kind} {'x'.join(map(str, source.shape))}" if is_array(source) else kind


def base_name(base: Source) -> str | None:
    """Name by which an adapter's configuration calls its base: of the hub, a path, or its own.

    Of a file it is the folder, if that has the configuration of a model.
    """
    if not is_path(base):
        return getattr(base, "name_or_path", None) or None
    path = Path(os.fspath(base))
    has_model = path.is_file() and (path.parent / "config.json").is_file()
    return str(path.parent) if has_model else describe(base).removeprefix("hub:")


def open_checkpoint(source: Source) -> Checkpoint:
    """Open a checkpoint of full weights.

    A ``.safetensors`` file; a PyTorch file of any name that loads with ``weights_only=True``, also
    a trainer's, of which the model's tensors are taken; an index of shards
    (``*.index.json``); a folder with ``model.safetensors``, ``pytorch_model.bin``, or one
    safetensors file or index; ``hub:org/name[@rev]``; or a state dict, a module or one matrix in
    memory.

    Weights in FP8 are loaded times their scales, and those of weight normalisation composed. Other
    quantised or parametrised modules are left out.
    """
    if not is_path(source):
        return ComposedCheckpoint(tensors_in_memory(source))
    path = opened = resolve(source)
    path = path if path.is_file() else _main_file(path)
    if path.name.endswith(_INDEX):
        checkpoint: Checkpoint = _sharded(path)
    elif is_pickled(path) is None:
        raise InvalidArgumentError(
            f"{path} is neither a .safetensors nor a PyTorch file ({', '.join(PICKLES)}); save "
            "its tensors as .safetensors"
        )
    else:
        _check_is_whole(path)
        checkpoint = open_file(path)
    # A configuration that is not valid is as good as none.
    with suppress(ResourceError):
        if (config := path.with_name(_CONFIG)).is_file():
            checkpoint.config = read_json(config)
    for name in _other_modules(opened):
        reason = "another module of sentence-transformers: pass its folder of both sides"
        checkpoint.leave_out(name, reason)
    return ComposedCheckpoint(checkpoint)


def _other_modules(folder: Path) -> Iterator[str]:
    """Folders with weights in the folder of a model of sentence-transformers, beside the first."""
    if (folder / "modules.json").is_file():
        for name in (SAFETENSORS, TORCH):
            yield from (path.parent.name for path in folder.glob(f"[0-9]*_*/{name}"))


def _main_file(folder: Path) -> Path:
    """The file of the weights in a folder, or the index of several."""
    names = (SAFETENSORS, f"{SAFETENSORS}{_INDEX}", TORCH, f"{TORCH}{_INDEX}")
    usual = [file for file in map(folder.joinpath, names) if file.is_file()]
    patterns = [folder.glob(f"*.safetensors{_INDEX}"), folder.glob("*.safetensors")]
    candidates = next((files for files in (usual[:1], *map(list, patterns)) if files), [])
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = sorted(file.name for file in candidates)
        some = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
        raise InvalidArgumentError(
            f"{folder} holds {len(names)} checkpoints ({some}); pass the file of one of them"
        )
    what = f"{folder} holds no checkpoint" if any(folder.iterdir()) else f"{folder} is empty"
    raise InvalidArgumentError(
        f"{what}; pass a folder with {SAFETENSORS} or {TORCH}, or the file of the weights itself"
    )


def _check_is_whole(path: Path) -> None:
    """Refuse one of several shards, which would pass for the whole model."""
    shards = _SHARD.search(path.name)
    if shards and int(shards[1]) > 1:
        raise InvalidArgumentError(
            f"{path} is one of {int(shards[1])} shards; fetch all and their {_INDEX}, and pass "
            "the folder"
        )


def resolve(source: str | os.PathLike[str]) -> Path:
    """Path of a source; a ``hub:`` name is downloaded first."""
    text = os.fspath(source)
    if text.startswith(HUB):
        return download(text.removeprefix(HUB))
    return existing_path(text)


def _sharded(index: Path) -> Shards:
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(file, str) for file in shards.values()):
        raise DamagedError(f'{index} has no "weight_map" from names to files')
    with any_error_as(DamagedError, f"{index} has a name that is no text", "; rename the tensor"):
        "".join(shards).encode()
    names_in: dict[Path, list[str]] = {}
    for name, file in shards.items():
        if Path(file).name != file:
            raise DamagedError(f"{index} names the file {file!r} outside its own folder")
        names_in.setdefault(index.parent / file, []).append(name)
    return Shards(names_in)


def download(name: str) -> Path:
    """Fetch the weights of ``org/name[@revision]`` (safetensors only) into the hub's own cache."""
    repository, _, revision = name.partition("@")
    if "/" not in repository or not HUB_NAME.fullmatch(repository):
        raise InvalidArgumentError(
            f"hub:{name} does not name a repository; write hub:org/name or hub:org/name@revision"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError as error:
        raise ResourceError(
            "reading from the hub needs huggingface_hub: pip install 'loca-theory[hub]'"
        ) from error
    way_out = "; download it yourself and pass its folder"
    with any_error_as(ResourceError, f"hub:{name} cannot be fetched", way_out):
        try:
            path = snapshot_download(repository, revision=revision or None, allow_patterns=_FILES)
        except (LocalEntryNotFoundError, RepositoryNotFoundError) as error:
            raise OSError("no network, no such repository, or no access to it") from error
        return Path(path)

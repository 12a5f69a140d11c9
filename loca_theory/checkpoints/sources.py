"""Opening a checkpoint: what is in it, and one tensor at a time.

Nothing is unpickled that could execute code, and nothing is read before it is asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard, Union

from loca_theory.errors import InvalidArgumentError, ResourceError

if TYPE_CHECKING:
    import torch

    from loca_theory.transforms.inputs import TensorLike

Source: TypeAlias = Union[
    str, os.PathLike[str], Mapping[str, "TensorLike"], "torch.nn.Module", "TensorLike"
]
"""A path or ``hub:`` name, a state dict, a module, or one matrix."""

SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
ADAPTER_CONFIG = "adapter_config.json"
_INDEX = ".index.json"
_PICKLES = (".bin", ".pt", ".pth")
_ALONE = "increment"  # the name of a matrix without one
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w.-]+)?")
_MATRIX = 2  # dimensions
_SMALLEST_SIDE = 2


class DamagedError(ResourceError):
    """A file, or a tensor of it, that cannot be read as what it claims to be."""


@dataclass(frozen=True)
class Entry:
    """What a checkpoint says of one tensor.

    Attributes:
        shape: Its shape.
        dtype: Its element type, in the words of the file (``BF16``, ``F32``, ``I8``, …).
        tied_to: Name of an earlier tensor with the same memory, or None.
    """

    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None


class Checkpoint(Protocol):
    """Named tensors.

    Attributes:
        entries: What is there, by name.
        damaged: Names that are announced and cannot be read, with the reason.
        ignored: Names of what is intact and no plain tensor, with the reason.
    """

    entries: dict[str, Entry]
    damaged: dict[str, str]
    ignored: dict[str, str]

    def load(self, name: str) -> torch.Tensor:
        """One tensor, on the CPU and in its own dtype.

        Raises:
            DamagedError: it cannot be read.
        """
        ...


@dataclass
class SafetensorsCheckpoint:
    """Tensors in one safetensors file, or in several.

    Each tensor is read through a mapping of its own: pages of the file that were looked at do not
    stay in the process's memory.

    Args:
        shards: The file that holds each announced name; None for every name of one file.
        file: The one file, if there is no index.
    """

    file: Path | None = None
    shards: Mapping[str, Path] | None = None
    entries: dict[str, Entry] = field(init=False, default_factory=dict)
    damaged: dict[str, str] = field(init=False, default_factory=dict)
    ignored: dict[str, str] = field(init=False, default_factory=dict)
    _files: dict[str, Path] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None:
            self._read_header(self.file, None)
            return
        by_file: dict[Path, list[str]] = {}
        for name, path in (self.shards or {}).items():
            by_file.setdefault(path, []).append(name)
        for path, names in by_file.items():
            try:
                self._read_header(path, names)
            except ResourceError as error:
                self.damaged.update(dict.fromkeys(names, str(error)))

    def _read_header(self, path: Path, wanted: list[str] | None) -> None:
        with _opened(path) as tensors:
            present = set(tensors.keys())
            for name in sorted(present, key=natural_order) if wanted is None else wanted:
                if name not in present:
                    self.damaged[name] = f"{path.name} does not hold it, though the index says so"
                    continue
                view = tensors.get_slice(name)
                self.entries[name] = Entry(tuple(view.get_shape()), str(view.get_dtype()))
                self._files[name] = path

    def load(self, name: str) -> torch.Tensor:
        """One tensor; see :class:`Checkpoint`.

        Raises:
            DamagedError: it cannot be read.
        """
        with _opened(self._files[name]) as tensors:
            # A copy: the view would keep the mapping alive.
            return tensors.get_tensor(name).clone()


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as tensors:
            yield tensors
    except (SafetensorError, ValueError, OverflowError, AttributeError, KeyError) as error:
        msg = f"{path} is not an intact safetensors file ({_one_line(error)}); fetch it again"
        raise DamagedError(msg) from error
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error


@dataclass
class TensorsCheckpoint:
    """Tensors that are in memory (or mapped there) already.

    Args:
        tensors: The tensors by name.
        ignored: Names of what stands beside them and is not a tensor, with the reason.
    """

    tensors: Mapping[str, torch.Tensor]
    ignored: dict[str, str] = field(default_factory=dict)
    entries: dict[str, Entry] = field(init=False, default_factory=dict)
    damaged: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        import torch

        first: dict[tuple[int, tuple[int, ...], tuple[int, ...]], str] = {}
        for name, tensor in self.tensors.items():
            if tensor.layout is not torch.strided or tensor.is_meta:
                self.ignored[name] = f"no plain tensor: {tensor.layout} on {tensor.device}"
                continue
            if tensor.numel() > tensor.untyped_storage().nbytes() // tensor.element_size():
                self.damaged[name] = "declares more entries than the file holds"
                continue
            storage = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
            owner = first.setdefault(storage, name) if tensor.numel() else name
            dtype = str(tensor.dtype).removeprefix("torch.")
            tied_to = None if owner == name else owner
            self.entries[name] = Entry(tuple(tensor.shape), dtype, tied_to)

    def load(self, name: str) -> torch.Tensor:
        """One tensor; see :class:`Checkpoint`."""
        return self.tensors[name].detach().cpu()


def is_path(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a source is a path, or a name on the hub."""
    return isinstance(source, str | os.PathLike)


def is_array(source: Source | None) -> TypeGuard[TensorLike]:
    """Whether a source is one array or tensor."""
    # Told by what it has: nothing is imported for it.
    return hasattr(source, "ndim") and hasattr(source, "dtype")


def describe(source: Source) -> str:
    """What a manifest says of a source."""
    if is_path(source):
        return os.fspath(source)
    kind = type(source).__name__
    return f"{kind} {'x'.join(map(str, source.shape))}" if is_array(source) else kind


def open_checkpoint(source: Source) -> Checkpoint:
    """Open a checkpoint of full weights.

    Args:
        source: A ``.safetensors`` file; a PyTorch file that loads with ``weights_only=True``; a
            folder with ``model.safetensors``, ``pytorch_model.bin`` or either with an index of
            shards; a Hugging Face cache folder ``models--org--name``; ``hub:org/name[@rev]``;
            or a state dict, a module or one matrix in memory.

    Raises:
        InvalidArgumentError: there is nothing, or nothing of that kind.
        DamagedError: a file is not what it claims to be, or would execute code.
        ResourceError: a file cannot be read.
    """
    if not is_path(source):
        return TensorsCheckpoint(*_tensors(source))
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
    msg = f"{path} holds no {SAFETENSORS}, no {TORCH} and no index of shards; name the file itself"
    raise InvalidArgumentError(msg)


def _tensors(source: Source) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What is in memory, by name, and why the rest cannot be used."""
    import torch

    from loca_theory.transforms.inputs import as_tensor

    if isinstance(source, torch.nn.Module):
        source = source.state_dict()
    elif is_array(source):
        source = {_ALONE: _matrix(source)}
    if not isinstance(source, Mapping):
        msg = "a checkpoint is a path, a state dict, a module or a matrix, not a "
        msg += f"{type(source).__name__}; convert a matrix with numpy.asarray"
        raise InvalidArgumentError(msg)
    tensors: dict[str, torch.Tensor] = {}
    ignored: dict[str, str] = {}
    for name, value in source.items():
        try:
            is_tensor = isinstance(value, torch.Tensor)
            tensors[str(name)] = value if is_tensor else as_tensor(value, str(name))
        except InvalidArgumentError:
            ignored[str(name)] = f"no tensor: {type(value).__name__}"
    if not tensors:
        msg = "the state dict holds no tensor; pass what model.state_dict() returns"
        raise InvalidArgumentError(msg)
    if all(tensor.is_meta for tensor in tensors.values()):
        msg = "its weights are on the meta device and have no values; load them first"
        raise InvalidArgumentError(msg)
    return tensors, ignored


def _matrix(array: TensorLike) -> torch.Tensor:
    from loca_theory.transforms.inputs import as_tensor, usable

    if array.ndim != _MATRIX or min(array.shape) < _SMALLEST_SIDE:
        msg = f"the array has shape {tuple(array.shape)}; pass a matrix of at least two rows and "
        msg += "columns, such as one layer of it"
        raise InvalidArgumentError(msg)
    wide, tensor = usable(array, "the array"), as_tensor(array, "the array")
    return tensor if tensor.is_floating_point() else wide


def resolve(source: str | os.PathLike[str]) -> Path:
    """The file or folder that a source stands for, fetched from the hub where it says so.

    Raises:
        InvalidArgumentError: there is no such path.
        ResourceError: the hub cannot be reached, or the extra is missing.
    """
    text = os.fspath(source)
    if text.startswith("hub:"):
        from loca_theory.checkpoints.hub import download

        return download(text.removeprefix("hub:"))
    path = Path(text).expanduser()
    if not text or not path.exists():
        msg = f"there is no file or folder {text or 'without a name'}"
        if _HUB_NAME.fullmatch(text) and path.suffix not in (".safetensors", *_PICKLES):
            msg += f"; write hub:{text} if it is on the hub"
        raise InvalidArgumentError(msg)
    if path.is_dir() and (path / "snapshots").is_dir():
        return _snapshot(path)
    return path


def _snapshot(cache: Path) -> Path:
    """The snapshot of a Hugging Face cache folder that ``main`` points to, or the only one."""
    reference = cache / "refs" / "main"
    if reference.is_file():
        named = cache / "snapshots" / reference.read_text(encoding="utf-8").strip()
        if named.is_dir():
            return named
    snapshots = sorted(one for one in (cache / "snapshots").iterdir() if one.is_dir())
    if len(snapshots) != 1:
        msg = f"{cache} holds {len(snapshots)} snapshots; name the one you mean"
        raise InvalidArgumentError(msg)
    return snapshots[0]


def _open_file(path: Path) -> Checkpoint:
    if path.suffix == ".safetensors":
        return SafetensorsCheckpoint(file=path)
    if path.suffix in _PICKLES:
        return TensorsCheckpoint(load_pickled(path))
    msg = f"{path} is neither a .safetensors nor a PyTorch file ({', '.join(_PICKLES)})"
    raise InvalidArgumentError(msg)


def load_pickled(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a PyTorch file, without executing anything in it.

    Raises:
        DamagedError: it holds anything but tensors and plain containers, or is damaged.
        ResourceError: it cannot be read.
    """
    import pickle

    import torch

    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, ValueError):
            # Files of the format before 1.6 cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        msg = f"{path} was refused: it holds Python objects that would run code when loaded, or is "
        msg += "damaged; save its tensors as .safetensors where you trust it"
        raise DamagedError(msg) from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error
    except Exception as error:
        # Whatever a damaged archive brings up; nothing of it was executed.
        msg = f"{path} is not an intact PyTorch file ({_one_line(error)}); fetch it again"
        raise DamagedError(msg) from error
    for key in ("state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict):
        msg = f"{path} holds no dictionary of tensors"
        raise DamagedError(msg)
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}


def _open_sharded(index: Path) -> Checkpoint:
    content = read_json(index)
    shards = content.get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(one, str) for one in shards.values()):
        msg = f'{index} has no "weight_map" from names to files'
        raise DamagedError(msg)
    for name in set(shards.values()):
        if Path(name).name != name:
            msg = f"{index} names the file {name!r} outside its own folder"
            raise DamagedError(msg)
    files = {name: index.parent / file for name, file in shards.items()}
    if index.name.startswith(SAFETENSORS):
        return SafetensorsCheckpoint(shards=files)
    tensors: dict[str, torch.Tensor] = {}
    damaged: dict[str, str] = {}
    for path in dict.fromkeys(files.values()):
        try:
            tensors.update(load_pickled(path))
        except ResourceError as error:
            damaged.update({name: str(error) for name, file in files.items() if file == path})
    checkpoint = TensorsCheckpoint(tensors)
    checkpoint.damaged.update(damaged)
    return checkpoint


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        DamagedError: the file holds none.
        ResourceError: it cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} is no JSON ({_one_line(error)})"
        raise DamagedError(msg) from error
    if not isinstance(content, dict):
        msg = f"{path} holds no JSON object"
        raise DamagedError(msg)
    return content


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """A sorting key that puts layer 2 before layer 10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__

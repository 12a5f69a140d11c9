"""Open checkpoints, list their tensors, and load one tensor at a time.

No file can execute code when it is loaded, and tensors are read only when they are loaded.
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
_ALONE = "increment"  # the name given to a single matrix
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w.-]+)?")
_MATRIX_DIMENSIONS = 2
_SMALLEST_SIDE = 2


class DamagedError(ResourceError):
    """A file, or a tensor in it, is damaged or not in the expected format."""


@dataclass(frozen=True)
class Entry:
    """Description of one tensor in a checkpoint.

    Attributes:
        shape: Its shape.
        dtype: Its element type, as the file names it (``BF16``, ``F32``, ``I8``, …).
        tied_to: Name of an earlier tensor with the same memory, or None.
    """

    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None


class Checkpoint(Protocol):
    """Named tensors.

    Attributes:
        entries: Tensors that can be loaded, by name.
        damaged: Names of tensors that are listed but cannot be read, with the reason.
        ignored: Names of intact objects that are not plain tensors, with the reason.
    """

    entries: dict[str, Entry]
    damaged: dict[str, str]
    ignored: dict[str, str]

    def load(self, name: str) -> torch.Tensor:
        """Load one tensor, on the CPU and in its own dtype.

        Raises:
            DamagedError: the tensor cannot be read.
        """
        ...


@dataclass
class SafetensorsCheckpoint:
    """Tensors in one safetensors file, or in several.

    Each tensor is read through a memory mapping of its own, so that pages of the file that were
    read do not stay in the process's memory.

    Args:
        shards: The file of each name in the index; None if there is a single file.
        file: The single file, if there is no index.
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
                    self.damaged[name] = (
                        f"{path.name} does not hold it, although the index lists it there"
                    )
                    continue
                view = tensors.get_slice(name)
                self.entries[name] = Entry(tuple(view.get_shape()), str(view.get_dtype()))
                # A worker process may have another current folder.
                self._files[name] = path.absolute()

    def load(self, name: str) -> torch.Tensor:
        """Load one tensor; see :class:`Checkpoint`.

        Raises:
            DamagedError: the tensor cannot be read.
        """
        with _opened(self._files[name]) as tensors:
            # Copy, because the view would keep the mapping alive.
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
    """Tensors that are already in memory or mapped into it.

    Args:
        tensors: The tensors by name.
        ignored: Names of other objects in the same state dict, with the reason.
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
                self.ignored[name] = f"not a plain tensor: {tensor.layout} on {tensor.device}"
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
        """Load one tensor; see :class:`Checkpoint`."""
        return self.tensors[name].detach().cpu()


def is_path(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether a source is a path, or a name on the hub."""
    return isinstance(source, str | os.PathLike)


def is_array(source: Source | None) -> TypeGuard[TensorLike]:
    """Whether a source is one array or tensor."""
    # Checked by attributes, so that torch need not be imported.
    return hasattr(source, "ndim") and hasattr(source, "dtype")


def describe(source: Source) -> str:
    """Describe a source for the manifest."""
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
        InvalidArgumentError: the path does not exist, or the source is of none of these kinds.
        DamagedError: a file is damaged, is not in the expected format, or would execute code.
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
    msg = f"{path} holds no {SAFETENSORS}, no {TORCH} and no index of shards; pass the file itself"
    raise InvalidArgumentError(msg)


def _tensors(source: Source) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors in memory by name, and the reason why each other object cannot be used."""
    import torch

    from loca_theory.transforms.inputs import as_tensor

    if isinstance(source, torch.nn.Module):
        source = source.state_dict()
    elif is_array(source):
        source = {_ALONE: _matrix(source)}
    if not isinstance(source, Mapping):
        msg = "a checkpoint must be a path, a state dict, a module or a matrix, not a "
        msg += f"{type(source).__name__}; convert a matrix with numpy.asarray"
        raise InvalidArgumentError(msg)
    tensors: dict[str, torch.Tensor] = {}
    ignored: dict[str, str] = {}
    for name, value in source.items():
        try:
            is_tensor = isinstance(value, torch.Tensor)
            tensors[str(name)] = value if is_tensor else as_tensor(value, str(name))
        except InvalidArgumentError:
            ignored[str(name)] = f"not a tensor: {type(value).__name__}"
    if not tensors:
        msg = "the state dict holds no tensor; pass what model.state_dict() returns"
        raise InvalidArgumentError(msg)
    if all(tensor.is_meta for tensor in tensors.values()):
        msg = "the weights are on the meta device and have no values; load them first"
        raise InvalidArgumentError(msg)
    return tensors, ignored


def _matrix(array: TensorLike) -> torch.Tensor:
    from loca_theory.transforms.inputs import as_tensor, usable

    if array.ndim != _MATRIX_DIMENSIONS or min(array.shape) < _SMALLEST_SIDE:
        msg = f"the array has shape {tuple(array.shape)}; pass a matrix of at least two rows and "
        msg += "columns, such as the weight of one layer"
        raise InvalidArgumentError(msg)
    wide, tensor = usable(array, "the array"), as_tensor(array, "the array")
    return tensor if tensor.is_floating_point() else wide


def resolve(source: str | os.PathLike[str]) -> Path:
    """Path of a source; a ``hub:`` name is downloaded first.

    Raises:
        InvalidArgumentError: the path does not exist.
        ResourceError: the hub cannot be reached, or huggingface_hub is not installed.
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
        msg = f"{cache} holds {len(snapshots)} snapshots; pass the path of one of them"
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
    """Load the tensors of a PyTorch file without executing code in it.

    Raises:
        DamagedError: the file is damaged, or holds objects other than tensors and plain containers.
        ResourceError: the file cannot be read.
    """
    import pickle

    import torch

    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, ValueError):
            # Files in the format before PyTorch 1.6 cannot be mapped.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        msg = f"{path} was refused: it holds Python objects that would run code when loaded, or is "
        msg += "damaged; if you trust it, save its tensors as .safetensors"
        raise DamagedError(msg) from error
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error
    except Exception as error:
        # A damaged archive can raise any exception; no code in it was executed.
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
    """Read a JSON object from a file.

    Raises:
        DamagedError: the file does not hold a JSON object.
        ResourceError: the file cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror or error}"
        raise ResourceError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not valid JSON ({_one_line(error)})"
        raise DamagedError(msg) from error
    if not isinstance(content, dict):
        msg = f"{path} holds no JSON object"
        raise DamagedError(msg)
    return content


def natural_order(name: str) -> list[tuple[bool, int, str]]:
    """Sorting key that puts layer 2 before layer 10."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__

"""A checkpoint: named tensors that are loaded one at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from loca_theory.errors import LocaTheoryError, ResourceError

FLOATS = re.compile(r"^(f|bf|float|bfloat)(8|16|32|64)", re.IGNORECASE)
"""Element types of numbers that can be subtracted; others are quantised or not weights."""

# The way out where a weight is quantised.
DEQUANTISE = "dequantise the model with its own library, save it and pass the copy"


@dataclass(frozen=True)
class Reason:
    """Why a tensor is left out, or can have no adapter.

    Attributes:
        case: What others may be left out for as well, by which they are counted.
        detail: What is special of this one.
    """

    case: str
    detail: str = ""

    def __str__(self) -> str:
        """The case, a colon and the detail."""
        return f"{self.case}: {self.detail}" if self.detail else self.case


class DamagedError(ResourceError):
    """A file, or a tensor in it, is damaged or not in the expected format."""

    damaged = True


class LeftOutError(Exception):
    """A tensor or matrix is left out, for a reason or for a case and its detail.

    Attributes:
        damaged: Whether the reason is a fault of the file rather than a property of the tensor.
        is_unpaired: Whether the other checkpoint, or the model, lacks its partner.
    """

    def __init__(
        self,
        reason: Reason | str,
        detail: str = "",
        *,
        damaged: bool = False,
        is_unpaired: bool = False,
    ) -> None:
        super().__init__(reason if isinstance(reason, Reason) else Reason(reason, detail))
        self.damaged, self.is_unpaired = damaged, is_unpaired


def reason_of(error: DamagedError | LeftOutError) -> Reason:
    """The reason that an error was raised with."""
    (reason,) = error.args
    return reason if isinstance(reason, Reason) else Reason(reason)


@dataclass(frozen=True)
class Skipped:
    """A tensor that was left out.

    Attributes:
        name: Name in the base, or in the fine-tuned checkpoint if only that has the tensor.
        reason: Why it was left out.
        damaged: Whether the reason is a fault of the file rather than a property of the tensor.
        tuned: Label of the fine-tune; "" for a tensor that :func:`extract` left out.
        case: The part of the reason that others have in common.
    """

    name: str
    reason: str
    damaged: bool = False
    tuned: str = ""
    case: str = ""

    @classmethod
    def of(cls, name: str, reason: Reason, *, damaged: bool = False, tuned: str = "") -> Skipped:
        """The row of a tensor that was left out for a reason."""
        return cls(name, str(reason), damaged, tuned, reason.case)


@dataclass(frozen=True)
class TensorEntry:
    """Description of one tensor in a checkpoint.

    Attributes:
        shape: Its shape.
        dtype: Its element type, as the file names it (``BF16``, ``F32``, ``I8``, …).
        tied_to: Name of an earlier tensor with the same memory, or None.
        is_computed: Whether it is computed from several tensors, in a new one, when it is loaded.
    """

    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None
    is_computed: bool = False


@dataclass
class Checkpoint:
    """Named tensors.

    Attributes:
        entries: Tensors that can be loaded, by name.
        left_out: Why other tensors cannot be: they are damaged, or no plain tensors.
        config: Configuration of the model (``config.json``); empty if there is none.
        module: The model itself, if these are its tensors in memory.
    """

    entries: dict[str, TensorEntry] = field(init=False, default_factory=dict)
    left_out: dict[str, LeftOutError] = field(kw_only=True, default_factory=dict)
    config: Mapping[str, Any] = field(init=False, default_factory=dict)
    module: torch.nn.Module | None = field(kw_only=True, default=None)

    @property
    def names(self) -> list[str]:
        """Names of all tensors, also of those that cannot be loaded."""
        return list(dict.fromkeys([*self.entries, *self.left_out]))

    def entry(self, name: str) -> TensorEntry:
        """The entry stored under a name; raises the reason if it cannot be loaded."""
        if name in self.left_out:
            raise self.left_out[name]
        return self.entries[name]

    def stored_entry(self, name: str) -> TensorEntry | None:
        """The entry stored under a name, also if the model does not have it; None without one."""
        return self.entries.get(name)

    def stored_name(self, name: str) -> str:
        """The name under which a tensor is stored; the first one if it is made of several."""
        return name

    def leave_out(self, name: str, reason: Reason | str, detail: str = "", **causes: bool) -> None:
        """List a tensor as one that cannot be loaded, for a reason; see :class:`LeftOutError`."""
        self.left_out[name] = LeftOutError(reason, detail, **causes)
        self.entries.pop(name, None)

    def load(self, name: str, expert: int | None = None) -> torch.Tensor:
        """Load a tensor, on the CPU and in its own dtype, or in a wide one if it is computed.

        The caller must not write to it, because it may be the checkpoint's own memory. Of a tensor
        with the weights of several experts, one index along the first dimension can be loaded.
        """
        tensor, shape = self._read(name, expert), self.entries[name].shape
        if expert is not None and tensor.ndim == len(shape):
            tensor = tensor[expert]
        if tuple(tensor.shape) != (shape if expert is None else shape[1:]):
            raise DamagedError(f"{name} has changed its shape since it was opened; start again")
        return tensor

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        """Read a tensor, or one expert of it if that is faster; see :meth:`load`."""
        raise NotImplementedError

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the tensors, as they are stored, from which a tensor or one expert is made."""
        yield self.load(name, expert)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    with intact(path, "JSON"):
        content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise DamagedError(f"{path} holds no JSON object")
    return content


@contextmanager
def any_error_as(kind: type[LocaTheoryError], what: str, way_out: str = "") -> Iterator[None]:
    """Raise one kind of error for all that another library reports, by exceptions of any type."""
    try:
        yield
    except (kind, ResourceError, MemoryError):
        raise
    except Exception as error:
        raise kind(f"{what}: {one_line(error)}{way_out}") from error


@contextmanager
def intact(path: Path, kind: str) -> Iterator[None]:
    """Say which file cannot be read, or is not an intact one of its kind."""
    with any_error_as(DamagedError, f"{path} is not an intact {kind} file", "; fetch it again"):
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise ResourceError(f"{path} cannot be read: {error.strerror or error}") from error


def one_line(error: Exception) -> str:
    """The message of an exception, shortened to one line."""
    # The message of a failed look-up is the key alone.
    text = repr(error) if isinstance(error, LookupError) else str(error)
    return " ".join(text.split())[:200] or type(error).__name__

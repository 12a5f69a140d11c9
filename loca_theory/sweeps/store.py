"""Cells of a sweep, and a store of their results, one small file per finished cell."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from operator import methodcaller
from pathlib import Path
from typing import Any, ClassVar

from loca_theory.sweeps.files import TEMPORARY_SUFFIX, writable_folder, write_atomically
from loca_theory.sweeps.version import code_version

# Partial files of a killed run are removed once no live run can still be writing them.
_ABANDONED_AFTER_S = 3600.0


class Cell:
    """One independent computation of a sweep; a subclass is a frozen dataclass.

    The fields are all that the result depends on besides the code. They hold numbers, texts, None,
    enumerations, dataclasses and tuples of these; the metadata ``describe`` of a field is a
    function that makes such data from any other value. A field that is not compared
    (``compare=False``) is not part of the key.

    Attributes:
        experiment: Name of what is computed.
        packages: Names of the packages and modules whose code computes it.
        result: Type of what is computed: a dictionary of plain data for JSON, or a frozen dataclass
            of such data, or a union of these, which the store restores.
    """

    experiment: ClassVar[str]
    result: ClassVar[Any] = dict
    packages: ClassVar[tuple[str, ...]] = ()

    @property
    def version(self) -> str:
        """Version of the code that computes the cell (``code_version``)."""
        return code_version(*self.packages)

    @property
    def is_storable(self) -> bool:
        """Whether the description distinguishes the cell from every other one."""
        return True

    def describe(self) -> dict[str, Any]:
        """The cell as plain data, as it is stored beside its result."""
        return {"experiment": self.experiment, "parameters": described(self)}

    def key(self) -> str:
        """Hash that names the cell's file: equal only for equal cells and code."""
        return _digest({**self.describe(), "version": self.version})[:32]


@dataclass(frozen=True)
class Point(Cell):
    """A cell whose parameters are plain data by name, for JSON."""

    experiment: str  # pyright: ignore[reportIncompatibleVariableOverride]
    parameters: Mapping[str, Any]
    packages: tuple[str, ...] = ()  # pyright: ignore[reportIncompatibleVariableOverride]

    def describe(self) -> dict[str, Any]:
        """The point as plain data."""
        return {"experiment": self.experiment, "parameters": dict(self.parameters)}


class ResultStore:
    """A folder with one JSON file per finished cell, named by experiment, version and key.

    JSON preserves every float exactly (``repr`` round-trips), and reading it executes no code. A
    file is used only if it parses, its checksum matches its result and it describes the requested
    cell. Any other file is listed in :attr:`rejected`, and its cell is computed again.

    Args:
        folder: Folder of the files; created if needed.

    Attributes:
        rejected: One line for each rejected file, with the reason.

    Raises:
        ResourceError: the folder cannot be created or written to.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = writable_folder(Path(folder))
        self.rejected: list[str] = []
        self._loaded: set[str] = set()  # what the names of files of loaded cells begin with
        self._remove_abandoned()

    def path(self, cell: Cell) -> Path:
        """Path of the cell's file, whether or not it exists."""
        return self.folder / f"{_prefix(cell)}{cell.key()}.json"

    def outdated(self) -> int:
        """Count results of the loaded experiments that another version of the code stored.

        They are neither used nor deleted.
        """
        experiments = tuple(f"{prefix.split('@')[0]}@" for prefix in self._loaded)
        names = [path.name for path in self.folder.glob("*.json")]
        unread = [name for name in names if not name.startswith(tuple(self._loaded))]
        return sum(name.startswith(experiments) for name in unread)

    def load(self, cell: Cell) -> Any:
        """Load a stored result, of the cell's type; None if it does not exist or is rejected."""
        path = self.path(cell)
        self._loaded.add(_prefix(cell))
        try:
            content = json.loads(path.read_bytes())
            reason = _reason_to_reject(content, cell)
            if not reason:
                plain = content["result"]
                return plain if cell.result is dict else _restore(cell.result)(plain)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            reason = f"is unreadable ({type(error).__name__})"
        self.rejected.append(f"{path.name} {reason}; the result is recomputed")
        return None

    def save(self, cell: Cell, result: Any) -> None:
        """Store a result of the cell's type.

        Raises:
            ResourceError: the file cannot be written; an earlier file is unchanged.
        """
        plain = result if isinstance(result, dict) else dataclasses.asdict(result)
        content = {
            "version": cell.version,
            "point": cell.describe(),
            "checksum": _digest(plain),
            "result": plain,
        }
        text = json.dumps(content)
        write_atomically(self.path(cell), lambda path: path.write_text(text, encoding="utf-8"))

    def _remove_abandoned(self) -> None:
        oldest = time.time() - _ABANDONED_AFTER_S
        for path in self.folder.glob(f"*{TEMPORARY_SUFFIX}"):
            # Another run may remove it first, or it is not ours to remove.
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()


@cache
def _restore(kind: Any) -> Callable[[Any], Any]:
    from pydantic import TypeAdapter  # takes a while to import

    return TypeAdapter(kind).validate_python


def _prefix(cell: Cell) -> str:
    return f"{cell.experiment}@{cell.version[:8]}-"


def _reason_to_reject(content: Any, cell: Cell) -> str | None:
    if not isinstance(content, dict) or not isinstance(content.get("result"), dict):
        return "has another format"
    if content.get("checksum") != _digest(content["result"]):
        return "is damaged (checksum)"
    # Compared as text, because in Python 1 == 1.0 == True and NaN != NaN.
    stored = _canonical([content.get("point"), content.get("version")])
    if stored != _canonical([cell.describe(), cell.version]):
        return "belongs to another computation"
    return None


def _digest(data: Any) -> str:
    return hashlib.sha256(_canonical(data).encode()).hexdigest()


def _canonical(data: Any) -> str:
    return json.dumps(data, sort_keys=True)


def described(specification: Any, *left_out: str) -> dict[str, Any]:
    """The compared fields of a dataclass as plain data, except those that are left out."""
    from pydantic_core import to_jsonable_python  # takes a while to import

    # Other scalars than Python's are those of NumPy.
    plain = partial(to_jsonable_python, fallback=methodcaller("item"))
    return {
        field.name: field.metadata.get("describe", plain)(getattr(specification, field.name))
        for field in dataclasses.fields(specification)
        if field.compare and field.name not in left_out
    }

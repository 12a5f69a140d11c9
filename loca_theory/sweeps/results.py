"""Results of computations: typed tables, and a manifest that describes how to reproduce them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np

from loca_theory._arguments import path
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.tables import load_rows, store_rows

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS_SHOWN = 20


def rows(row_type: type) -> Any:
    """Declare a field of a :class:`Result` that holds a table: a tuple of rows of one type."""
    return dataclasses.field(metadata={"row": row_type})


@dataclass(frozen=True, repr=False)
class Result:
    """Tables of one computation.

    A subclass is a frozen dataclass with ``command`` and one field per table, declared as
    ``errors: tuple[Row, ...] = rows(Row)``. The first table is the main one.

    Attributes:
        manifest: How the tables were computed: arguments, seed, versions, machine.
        command: Name of the command that prints this result; stored tables are named after it.
    """

    manifest: dict[str, Any]
    command: ClassVar[str]

    def to_frame(self, table: str | None = None) -> pd.DataFrame:
        """Return a table as a data frame, one column per field of its rows.

        Args:
            table: Name of the table; None for the main one.

        Raises:
            InvalidArgumentError: no table has this name.
        """
        import pandas as pd

        types = self._tables()
        name = next(iter(types)) if table is None else table
        columns = [field.name for field in dataclasses.fields(find("table", name, types))]
        return pd.DataFrame(self._plain(name), columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return the tables and the manifest as plain data for JSON."""
        return {**{name: self._plain(name) for name in self._tables()}, "manifest": self.manifest}

    def save(self, folder: str | Path) -> list[Path]:
        """Write each table as a parquet file, and its manifest beside it.

        Args:
            folder: Folder to write to; created if it does not exist.

        Returns:
            The files written.

        Raises:
            ResourceError: the folder cannot be written to.
        """
        folder = path("folder", folder)
        return [
            written
            for name in self._tables()
            for written in store_rows(
                self.to_frame(name), self.manifest, folder, self._stored_name(name)
            )
        ]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the result that :meth:`save` wrote to a folder.

        Raises:
            InvalidArgumentError: the class has no tables, like :class:`Result` itself.
            ResourceError: a file is missing, or another version of the package wrote it.
        """
        if not cls._tables():
            msg = f"{cls.__name__} has no tables; call load on the class of the saved result, for "
            msg += "example SimulationResult.load(folder)"
            raise InvalidArgumentError(msg)
        folder = path("folder", folder)
        tables: dict[str, Any] = {}
        manifest: dict[str, Any] = {}
        for name, row_type in cls._tables().items():
            frame, manifest = load_rows(folder, cls._stored_name(name))
            source = f"{folder / cls._stored_name(name)}.parquet"
            wanted = [field.name for field in dataclasses.fields(row_type)]
            if missing := ", ".join(one for one in wanted if one not in frame.columns):
                msg = f"{source} was saved by another version of loca-theory (missing columns: "
                msg += f"{missing}); compute the result again"
                raise ResourceError(msg)
            tables[name] = _typed(frame, row_type, source)
        return cls(manifest=manifest, **tables)

    def __repr__(self) -> str:
        """Show the names of the tables and their numbers of rows, but not the rows themselves."""
        sizes = {name: len(getattr(self, name)) for name in self._tables()}
        tables = (f"{name}: {size} row{'s' * (size != 1)}" for name, size in sizes.items())
        return f"{type(self).__name__}({', '.join(tables)})"

    def _repr_html_(self) -> str:
        """The main table, as notebooks show it."""
        return self.to_frame().to_html(
            max_rows=_MOST_ROWS_SHOWN, show_dimensions=True, border=0, notebook=True
        )

    @classmethod
    def _tables(cls) -> dict[str, type]:
        declared = dataclasses.fields(cls)
        return {one.name: one.metadata["row"] for one in declared if "row" in one.metadata}

    @classmethod
    def _stored_name(cls, table: str) -> str:
        return f"{cls.command}-{table}" if len(cls._tables()) > 1 else cls.command

    def _plain(self, table: str) -> list[dict[str, Any]]:
        return [dict(vars(row)) for row in getattr(self, table)]


def _typed(frame: pd.DataFrame, row_type: type, source: str) -> tuple[Any, ...]:
    """Convert a stored table to rows, restoring types that parquet widened because of nulls."""
    hints = get_type_hints(row_type)
    columns = []
    for field in dataclasses.fields(row_type):
        try:
            columns.append([_as(hints[field.name], one) for one in frame[field.name].tolist()])
        except (TypeError, ValueError) as error:
            msg = f"{source} was saved by another version of loca-theory (unexpected values in "
            msg += f"column {field.name}); compute the result again"
            raise ResourceError(msg) from error
    return tuple(row_type(*values) for values in zip(*columns, strict=True))


def _as(hint: Any, value: Any) -> Any:
    """Convert a stored value to its type: an enumeration member, a tuple, an integer or None."""
    if get_origin(hint) is tuple:
        if not isinstance(value, np.ndarray):
            raise TypeError
        return tuple(_as(get_args(hint)[0], one) for one in value.tolist())
    kinds = get_args(hint) or (hint,)
    if value is None or value != value:  # null, or NaN
        if type(None) not in kinds:
            raise TypeError
        return None
    kind = next(one for one in kinds if one is not type(None))
    if issubclass(kind, Enum):
        return kind(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    # A column of floats may hold integers, but a column of numbers may not hold booleans.
    if not isinstance(value, (int, float) if kind is float else kind) or (
        isinstance(value, bool) and kind is not bool
    ):
        raise TypeError
    return value

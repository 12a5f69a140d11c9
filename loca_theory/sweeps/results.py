"""What a computation returns: typed tables, and the manifest that says how to make them again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from loca_theory.errors import ResourceError
from loca_theory.sweeps.tables import load_rows, store_rows

if TYPE_CHECKING:
    import pandas as pd

_MOST_ROWS_SHOWN = 20


def rows(row_type: type) -> Any:
    """A field of a :class:`Result` that holds a table: a tuple of rows of one frozen type."""
    return dataclasses.field(metadata={"row": row_type})


@dataclass(frozen=True, repr=False)
class Result:
    """Tables of one computation.

    A subclass is a frozen dataclass with ``command`` and one field per table, declared as
    ``errors: tuple[Row, ...] = rows(Row)``. The first table is the main one.

    Attributes:
        manifest: Where the tables come from: arguments, seed, versions, machine.
        command: Name of the command that prints this result; stored tables are named after it.
    """

    manifest: dict[str, Any]
    command: ClassVar[str]

    def to_frame(self, table: str | None = None) -> pd.DataFrame:
        """A table as a data frame, one column per field of its rows.

        Args:
            table: Name of the table; None for the main one.

        Raises:
            KeyError: there is no such table.
        """
        import pandas as pd

        types = self._tables()
        name = next(iter(types)) if table is None else table
        columns = [field.name for field in dataclasses.fields(types[name])]
        return pd.DataFrame(self._plain(name), columns=columns)

    def to_json(self) -> dict[str, Any]:
        """The tables and the manifest as plain data, which JSON can hold."""
        return {**{name: self._plain(name) for name in self._tables()}, "manifest": self.manifest}

    def save(self, folder: str | Path) -> list[Path]:
        """Write every table as parquet, each beside its manifest.

        Args:
            folder: Where to; made if it is not there.

        Returns:
            The files.

        Raises:
            ResourceError: the folder cannot be written to.
        """
        return [
            path
            for name in self._tables()
            for path in store_rows(
                self.to_frame(name), self.manifest, Path(folder), self._stored_name(name)
            )
        ]

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The result that :meth:`save` wrote into a folder.

        Raises:
            ResourceError: it is not there, or another version of the package wrote it.
        """
        tables: dict[str, Any] = {}
        manifest: dict[str, Any] = {}
        for name, row_type in cls._tables().items():
            frame, manifest = load_rows(Path(folder), cls._stored_name(name))
            wanted = [field.name for field in dataclasses.fields(row_type)]
            if missing := ", ".join(one for one in wanted if one not in frame.columns):
                path = Path(folder) / f"{cls._stored_name(name)}.parquet"
                msg = f"{path} was saved by another version of loca-theory: it has no column "
                msg += f"{missing}; compute it again"
                raise ResourceError(msg)
            tables[name] = _typed(frame, row_type)
        return cls(manifest=manifest, **tables)

    def __repr__(self) -> str:
        """Name and number of rows of each table: tables have too many rows to print."""
        sizes = ", ".join(f"{name}: {len(getattr(self, name))} rows" for name in self._tables())
        return f"{type(self).__name__}({sizes})"

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


def _typed(frame: pd.DataFrame, row_type: type) -> tuple[Any, ...]:
    """Rows of a stored table; what parquet widened for the sake of null is as it was."""
    hints = get_type_hints(row_type)
    columns = [
        [_as(hints[field.name], value) for value in frame[field.name].tolist()]
        for field in dataclasses.fields(row_type)
    ]
    return tuple(row_type(*values) for values in zip(*columns, strict=True))


def _as(hint: Any, value: Any) -> Any:
    """A stored value as its type says: a member of an enumeration, a tuple, an integer, None."""
    import pandas as pd

    if get_origin(hint) is tuple:
        return tuple(_as(get_args(hint)[0], one) for one in value.tolist())
    kinds = get_args(hint) or (hint,)
    if type(None) in kinds and pd.isna(value):
        return None
    for kind in kinds:
        if kind is int or (isinstance(kind, type) and issubclass(kind, Enum)):
            return kind(value)
    return value

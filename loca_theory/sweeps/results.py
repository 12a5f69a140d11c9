"""Results of computations: typed tables, and a manifest that describes how to reproduce them.

A result is a parquet file with its manifest beside it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from importlib import import_module
from inspect import cleandoc
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from loca_theory._arguments import path
from loca_theory._lookup import find, unknown_name
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.tables import load_rows, store_tables, typed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


SHOWN_ROWS = 12
"""Rows and columns of a table in a shell."""

# A field and its text, in a docstring.
_FIELD = re.compile(r"^    (\w+): (.+(?:\n {8}.+)*)", re.MULTILINE)
# Names in a message.
_NAMED = 6


def meanings(row_type: type) -> dict[str, str]:
    """The meaning of each field of a row type, from its docstring, with markup."""
    texts = [kind.__doc__ or "" for kind in reversed(row_type.__mro__) if is_dataclass(kind)]
    found = (field for text in texts for field in _FIELD.findall(cleandoc(text)))
    return {name: " ".join(text.split()) for name, text in found}


def _front_door() -> Any:
    # Drawing builds on results. It is found by its name when it is called, as pandas finds its own.
    return import_module("loca_theory")


def rows(row_type: type) -> Any:
    """Declare a field of a :class:`Result` that holds a table: a tuple of rows of one type."""
    return dataclasses.field(metadata={"row": row_type})


@dataclass(frozen=True, repr=False)
class Result:
    """Tables of one computation.

    A subclass is a frozen dataclass with ``command`` and one field per table, declared as
    ``errors: tuple[Row, ...] = rows(Row)``. The first table is the main one: a result has its
    length, iterates over its rows, and ``result[0]``, ``result[:3]`` and, where rows have names,
    ``result["name"]`` are rows of it.

    Attributes:
        manifest: How the tables were computed: arguments, seed, versions, machine.
        command: Name of the command that prints this result, and of the file of its tables.
        names: Fields that name a row of the main table.
    """

    manifest: dict[str, Any]
    command: ClassVar[str]
    names: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        """Number of rows of the main table."""
        return len(self._rows())

    def __iter__(self) -> Iterator[Any]:
        """The rows of the main table."""
        return iter(self._rows())

    def __getitem__(self, key: int | slice | str | tuple[str, ...]) -> Any:
        """A row of the main table by its number or its name, or several by a slice.

        Args:
            key: A number, a slice, or the name of a row. The name of a weight may lack
                ``.weight``. Where several rows have the name, add what tells them apart, as in
                ``analysis["fc.weight", "fine-tune"]``.

        Raises:
            IndexError: there is no row of that number.
            InvalidArgumentError: no row has this name, or several have it.
        """
        if not isinstance(key, str | tuple):
            return self._rows()[key]
        key_names = {key} if isinstance(key, str) else set(key)
        rows = [
            row
            for row, names in zip(self, self._row_names(), strict=True)
            if key_names <= {*names, *(name.removesuffix(".weight") for name in names)}
        ]
        if len(rows) == 1:
            return rows[0]
        if not self.names:
            raise InvalidArgumentError(
                f"the rows of {type(self).__name__} have no names; choose from to_frame()"
            )
        if not rows:
            raise unknown_name("row", key, chain(*self._row_names()))
        names = sorted({str(getattr(row, field)) for row in rows for field in self.names})
        added = [name for name in names if not name.startswith(tuple(key_names))]
        raise InvalidArgumentError(
            f"{len(rows)} rows are named {key}; add one of {', '.join(added[:_NAMED])}"
        )

    def _rows(self) -> tuple[Any, ...]:
        return getattr(self, next(iter(self.tables()), ""), ())

    def _row_names(self) -> list[list[str]]:
        return [[str(getattr(row, field)) for field in self.names] for row in self._rows()]

    def plot(self, picture: str | None = None, **options: Any) -> Figure:
        """Draw the result; see :func:`~loca_theory.plotting.plot` for the options."""
        return _front_door().plot(self, picture, **options)

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the pictures that :meth:`plot` can draw of the result."""
        return import_module(_front_door().plot.__module__).picture_names(self)

    @property
    def caption(self) -> str:
        """The meaning of the lines of the first picture, and how they were computed."""
        return import_module(_front_door().plot.__module__).caption_of(self)

    def report(self) -> Any:
        """Make the HTML page of the result; see :func:`~loca_theory.plotting.report`."""
        return _front_door().report(self)

    def overview(self) -> pd.DataFrame:
        """The columns of the main table that are read first."""
        return self.to_frame()

    def to_frame(self, table: str | None = None) -> pd.DataFrame:
        """Return a table as a data frame, one column per field of its rows.

        Args:
            table: Name of the table; None for the main one.

        Raises:
            InvalidArgumentError: no table has this name.
        """
        import pandas as pd

        types = self.tables()
        name = next(iter(types)) if table is None else table
        columns = [field.name for field in dataclasses.fields(find("table", name, types))]
        plain = self._plain(name)
        return pd.DataFrame(plain, columns=None if plain else columns)

    def to_json(self) -> dict[str, Any]:
        """Return the tables and the manifest as plain data for JSON."""
        return {**{name: self._plain(name) for name in self.tables()}, "manifest": self.manifest}

    def save(self, folder: str | Path) -> list[Path]:
        """Write the tables as one parquet file, and the manifest beside it.

        A file of several tables has the columns of all of them, and a column ``table`` that names
        the table of a row.

        Args:
            folder: Folder to write to; created if it does not exist.

        Returns:
            The files written.

        Raises:
            ResourceError: the folder cannot be written to.
        """
        tables = {name: self._plain(name) or self.to_frame(name) for name in self.tables()}
        return store_tables(tables, self.manifest, path("folder", folder), self.command)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the result that :meth:`save` wrote to a folder.

        Raises:
            InvalidArgumentError: the class has no tables, like :class:`Result` itself.
            ResourceError: a file is missing, or another version of the package wrote it.
        """
        if not cls.tables():
            raise InvalidArgumentError(
                f"{cls.__name__} has no tables; call load on the class of the saved result, for "
                "example SimulationResult.load(folder)"
            )
        folder = path("folder", folder)
        tables, manifest = dict[str, Any](), dict[str, Any]()
        for name, row_type in cls.tables().items():
            table, manifest = load_rows(folder, cls.command, name if len(cls.tables()) > 1 else "")
            tables[name] = typed(table, row_type, f"{folder / cls.command}.parquet")
        return cls(manifest=manifest, **tables)

    def __repr__(self) -> str:
        """The tables with their numbers of rows, and some rows of the main one."""
        sizes = {name: len(getattr(self, name)) for name in self.tables()}
        tables = ", ".join(
            f"{name}: {size} {'row' if size == 1 else 'rows'}"
            for name, size in sizes.items()
            if size
        )
        title = f"{type(self).__name__}({tables})"
        return f"{title}\n{self._text()}" if len(self) else title

    def _text(self) -> str:
        """The text that a shell shows below the title."""
        return self.overview().to_string(max_rows=SHOWN_ROWS, max_cols=SHOWN_ROWS, index=False)

    def _repr_html_(self) -> str:
        """The overview of the main table, as notebooks show it."""
        return self.overview().to_html(max_rows=20, show_dimensions=True, border=0, notebook=True)

    @classmethod
    def tables(cls) -> dict[str, type]:
        """The type of the rows of each table, by the name of the table."""
        declared = dataclasses.fields(cls)
        return {field.name: field.metadata["row"] for field in declared if "row" in field.metadata}

    def _plain(self, table: str) -> list[dict[str, Any]]:
        return [dict(vars(row)) for row in getattr(self, table)]

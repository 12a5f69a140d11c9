"""Results of computations: typed tables, and a manifest that describes how to reproduce them.

Every table is a parquet file with its manifest beside it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from loca_theory._arguments import path
from loca_theory._lookup import find, unknown_name
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import naming_file, writable_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Rows and columns in a shell, and names in a message.
_SHOWN, _NAMED = 12, 6


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
        command: Name of the command that prints this result; stored tables are named after it.
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
        wanted = {key} if isinstance(key, str) else set(key)
        found = [
            row
            for row, names in zip(self, self._row_names(), strict=True)
            if wanted <= names | {name.removesuffix(".weight") for name in names}
        ]
        if len(found) == 1:
            return found[0]
        if not self.names:
            msg = f"the rows of {type(self).__name__} have no names; choose from to_frame()"
        elif found:
            names = sorted({str(getattr(row, field)) for row in found for field in self.names})
            others = [name for name in names if not name.startswith(tuple(wanted))]
            msg = f"{len(found)} rows are named {key}; add one of {', '.join(others[:_NAMED])}"
        else:
            kind = "row"
            raise unknown_name(kind, key, dict.fromkeys(chain(*self._row_names())))
        raise InvalidArgumentError(msg)

    def _rows(self) -> tuple[Any, ...]:
        return getattr(self, next(iter(self._tables()), ""), ())

    def _row_names(self) -> list[set[str]]:
        return [{str(getattr(row, field)) for field in self.names} for row in self._rows()]

    def plot(self, picture: str | None = None, *, ax: Axes | None = None) -> Figure:
        """Draw the result; see :func:`~loca_theory.plotting.plot`."""
        return _front_door().plot(self, picture, ax=ax)

    def report(self) -> Any:
        """Make the HTML page of the result; see :func:`~loca_theory.plotting.report`."""
        return _front_door().report(self)

    def overview(self) -> pd.DataFrame:
        """What is read first of the main table."""
        return self.to_frame()

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
        written = []
        for name in self._tables():
            rows = self._plain(name) or self.to_frame(name)
            written += store_rows(rows, self.manifest, folder, self._stored_name(name))
        return written

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
        tables, manifest = dict[str, Any](), dict[str, Any]()
        for name, row_type in cls._tables().items():
            table, manifest = _read(folder, stored := cls._stored_name(name))
            tables[name] = _typed(table, row_type, f"{folder / stored}.parquet")
        return cls(manifest=manifest, **tables)

    def __repr__(self) -> str:
        """The tables with their numbers of rows, and some rows of the main one."""
        sizes = {name: len(getattr(self, name)) for name in self._tables()}
        tables = (f"{name}: {size} row{'s' * (size != 1)}" for name, size in sizes.items() if size)
        title = f"{type(self).__name__}({', '.join(tables)})"
        return f"{title}\n{self._text()}" if len(self) else title

    def _text(self) -> str:
        """What a shell shows below the title."""
        return self.overview().to_string(max_rows=_SHOWN, max_cols=_SHOWN, index=False)

    def _repr_html_(self) -> str:
        """What is read first of the main table, as notebooks show it."""
        return self.overview().to_html(max_rows=20, show_dimensions=True, border=0, notebook=True)

    @classmethod
    def _tables(cls) -> dict[str, type]:
        declared = dataclasses.fields(cls)
        return {one.name: one.metadata["row"] for one in declared if "row" in one.metadata}

    @classmethod
    def _stored_name(cls, table: str) -> str:
        return f"{cls.command}-{table}" if len(cls._tables()) > 1 else cls.command

    def _plain(self, table: str) -> list[dict[str, Any]]:
        return [dict(vars(row)) for row in getattr(self, table)]


def _typed(table: pa.Table, row_type: type, source: str) -> tuple[Any, ...]:
    """Convert a stored table to rows."""
    columns, hints = [], get_type_hints(row_type)
    for name in (field.name for field in dataclasses.fields(row_type)):
        try:
            columns.append([_as(hints[name], one) for one in table[name].to_pylist()])
        except (KeyError, TypeError, ValueError) as error:
            why = "no" if isinstance(error, KeyError) else "unexpected values in"
            msg = f"{source} was saved by another version of loca-theory ({why} column {name}); "
            raise ResourceError(msg + "compute the result again") from error
    return tuple(row_type(*values) for values in zip(*columns, strict=True))


def _as(hint: Any, value: Any) -> Any:
    """Convert a stored value to its type: a tuple, an enumeration member, or as it is."""
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_as(kinds[0], one) for one in value)
    if value is None and type(None) in kinds:
        return None
    if issubclass(kinds[0], Enum):
        return kinds[0](value)
    if kinds[0] is int and isinstance(value, float) and value.is_integer():
        return int(value)  # of a table that pandas wrote, which widens integers beside nulls
    # A column of floats may hold integers.
    if type(value) is not kinds[0] and not (kinds[0] is float and type(value) is int):
        raise TypeError
    return value


def find_tables(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    """Find stored tables by name in a folder and its subfolders, sorted.

    Tables in folders named ``quick`` are skipped, because they come from trial runs.
    """
    if folder is None:
        return []
    found = {path for one in patterns for path in folder.rglob(f"{one}.parquet")}
    return sorted(path for path in found if "quick" not in path.relative_to(folder).parts)


def store_rows(
    rows: pd.DataFrame | Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
    folder: Path,
    name: str,
) -> list[Path]:
    """Write ``name.parquet`` and ``name.manifest.json``, each atomically.

    A run killed between the two leaves no manifest, so a manifest always belongs to its table. It
    has one line per key.

    Returns:
        The two files.
    """
    import pyarrow as pa
    from pyarrow import parquet

    writable_folder(folder)
    path, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    is_list = isinstance(rows, Sequence)
    table = pa.Table.from_pylist(list(rows)) if is_list else pa.Table.from_pandas(rows)
    with naming_file(manifest_path):
        manifest_path.unlink(missing_ok=True)
    write_atomically(path, lambda path: parquet.write_table(table, path))
    dumps = partial(json.dumps, allow_nan=False)
    entries = ",\n ".join(f"{dumps(name)}: {dumps(one)}" for name, one in manifest.items())
    text = f"{{\n {entries}\n}}\n"
    write_atomically(manifest_path, lambda path: path.write_text(text, encoding="utf-8"))
    return [path, manifest_path]


def load_rows(folder: Path, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read the table and the manifest that :func:`store_rows` wrote."""
    table, manifest = _read(folder, name)
    return table.to_pandas(), manifest


def _read(folder: Path, name: str) -> tuple[pa.Table, dict[str, Any]]:
    """Read both files of a stored table."""
    from pyarrow import parquet

    table, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    for file in (table, manifest_path):
        if not file.exists():
            msg = f"there is no {file.name} in {folder}; name the folder that it was saved in, "
            raise ResourceError(msg + "or compute it again")
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        return parquet.read_table(table), {**manifest}  # a TypeError if it is not an object
    except (OSError, TypeError, ValueError, RecursionError) as error:
        msg = f"{table} and its manifest cannot be read ({type(error).__name__}); "
        msg += "delete them and compute them again"
        raise ResourceError(msg) from error


def is_stored(folder: Path, name: str) -> bool:
    """Whether :func:`store_rows` has written both files of this name."""
    return (folder / f"{name}.parquet").exists() and (folder / f"{name}.manifest.json").exists()

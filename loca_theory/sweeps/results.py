"""Results of computations: typed tables, and a manifest that describes how to reproduce them.

Every table is a parquet file with its manifest beside it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args, get_origin, get_type_hints

from loca_theory._arguments import path
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import naming_file, writable_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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
        """Show the names of the tables and their numbers of rows, but not the rows themselves."""
        sizes = {name: len(getattr(self, name)) for name in self._tables()}
        tables = (f"{name}: {size} row{'s' * (size != 1)}" for name, size in sizes.items())
        return f"{type(self).__name__}({', '.join(tables)})"

    def _repr_html_(self) -> str:
        """The main table, as notebooks show it."""
        return self.to_frame().to_html(max_rows=20, show_dimensions=True, border=0, notebook=True)

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

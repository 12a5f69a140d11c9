"""Tables in parquet files, each with a manifest beside it that says how it was computed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import naming_file, writable_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    Rows = pd.DataFrame | Sequence[Mapping[str, Any]]

# In a file of several tables, the column with the name of a row's table.
_TABLE = "table"
# The key of such a file's metadata that has the columns of each table.
_COLUMNS = b"loca_theory.columns"


@dataclass(frozen=True, order=True)
class StoredTable:
    """A table that was found: its file, and its name if the file holds several."""

    path: Path
    table: str = ""

    def read(self) -> pd.DataFrame:
        """Its rows; the manifest is not read."""
        return _read_table(self.path, self.table).to_pandas()


def find_tables(folder: Path | None, patterns: Iterable[str]) -> list[StoredTable]:
    """Find stored tables by name in a folder and its subfolders, sorted.

    A table that shares a file with others, such as ``errors`` in ``analyze.parquet``, has the name
    ``analyze-errors``. Tables in folders named ``quick`` are skipped, because they come from trial
    runs.
    """
    if folder is None:
        return []
    tables: set[StoredTable] = set()
    for pattern in patterns:
        tables |= {StoredTable(path) for path in folder.rglob(f"{pattern}.parquet")}
        file, _, table = pattern.rpartition("-")
        together = folder.rglob(f"{file}.parquet") if file else ()
        tables |= {StoredTable(path, table) for path in together if table in _columns(path)}
    return sorted(table for table in tables if "quick" not in table.path.relative_to(folder).parts)


def store_rows(rows: Rows, manifest: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write a table to ``name.parquet``, and ``name.manifest.json``; see :func:`store_tables`."""
    return store_tables({name: rows}, manifest, folder, name)


def store_tables(
    tables: Mapping[str, Rows], manifest: Mapping[str, Any], folder: Path, name: str
) -> list[Path]:
    """Write tables to one ``name.parquet``, and ``name.manifest.json``, each file atomically.

    Each of several tables is a group of rows. The file has the columns of all tables, and
    ``table``. A run killed between the two files leaves no manifest, so a manifest always belongs
    to its tables. The manifest has one line per key.

    Returns:
        The two files.
    """
    import pyarrow as pa
    from pyarrow import parquet

    by_key = {key: _table(rows) for key, rows in tables.items()}
    table, *other_tables = by_key.values()
    if other_tables:
        columns = json.dumps({key: stored.column_names for key, stored in by_key.items()})
        named = [
            stored.add_column(0, _TABLE, pa.array([key] * len(stored), pa.string()))
            for key, stored in by_key.items()
        ]
        merged = pa.concat_tables(named, promote_options="permissive")
        table = merged.replace_schema_metadata({_COLUMNS: columns})
    writable_folder(folder)
    path, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    with naming_file(manifest_path):
        manifest_path.unlink(missing_ok=True)
    write_atomically(path, partial(parquet.write_table, table))
    dumps = partial(json.dumps, allow_nan=False)
    entries = ",\n ".join(f"{dumps(name)}: {dumps(value)}" for name, value in manifest.items())
    text = f"{{\n {entries}\n}}\n"
    write_atomically(manifest_path, lambda path: path.write_text(text, encoding="utf-8"))
    return [path, manifest_path]


def _table(rows: Rows) -> pa.Table:
    import pyarrow as pa

    is_list = isinstance(rows, Sequence)
    return pa.Table.from_pylist(list(rows)) if is_list else pa.Table.from_pandas(rows)


def load_rows(folder: Path, name: str, table: str = "") -> tuple[pa.Table, dict[str, Any]]:
    """Read a stored table and its manifest; from a file of several tables, the one of this name.

    Raises:
        ResourceError: a file is missing or damaged.
    """
    path, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    for file in (path, manifest_path):
        if not file.exists():
            raise ResourceError(
                f"there is no {file.name} in {folder}; name the folder that it was saved in, "
                "or compute it again"
            )
    try:
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        return _read_table(path, table), {**manifest}  # a TypeError if it is not an object
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ResourceError(
            f"{path} and its manifest cannot be read ({type(error).__name__}); "
            "delete them and compute them again"
        ) from error


def _read_table(path: Path, table: str) -> pa.Table:
    from pyarrow import parquet

    path = path.absolute()  # or pyarrow would take s3:/table.parquet for an address
    if not table:
        return parquet.read_table(path)
    columns = _columns(path)
    if table not in columns:
        raise ResourceError(
            f"{path} was saved by another version of loca-theory (no table {table}); "
            "compute the result again"
        )
    return parquet.read_table(path, columns=columns[table], filters=[(_TABLE, "==", table)])


def _columns(path: Path) -> dict[str, list[str]]:
    """The columns of each table in a file of several; none in other files."""
    from pyarrow import ArrowInvalid, parquet

    try:
        stored = (parquet.read_schema(path.absolute()).metadata or {}).get(_COLUMNS, b"{}")
    except ArrowInvalid:  # damaged: whoever reads it will say so
        return {}
    return json.loads(stored)


def is_stored(folder: Path, name: str) -> bool:
    """Whether :func:`store_rows` has written both files of this name."""
    return (folder / f"{name}.parquet").exists() and (folder / f"{name}.manifest.json").exists()


def typed(table: pa.Table, row_type: type, source: str) -> tuple[Any, ...]:
    """Convert a stored table to rows; a column that it lacks has its default, if there is one."""
    columns, hints = [], get_type_hints(row_type)
    for field in fields(row_type):
        name = field.name
        if name not in table.column_names and field.default is not MISSING:
            columns.append([field.default] * len(table))
            continue
        try:
            columns.append([_as(hints[name], value) for value in table[name].to_pylist()])
        except (KeyError, TypeError, ValueError) as error:
            why = "no" if isinstance(error, KeyError) else "unexpected values in"
            raise ResourceError(
                f"{source} was saved by another version of loca-theory ({why} column {name}); "
                "compute the result again"
            ) from error
    return tuple(row_type(*values) for values in zip(*columns, strict=True))


def _as(hint: Any, value: Any) -> Any:
    """Convert a stored value to its type: a tuple, an enumeration member, or as it is."""
    kinds = get_args(hint) or (hint,)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_as(kinds[0], element) for element in value)
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

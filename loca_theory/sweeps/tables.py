"""Tables on disk, each beside the manifest that says how it was made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd

_TRIAL = "quick"


def find_tables(folder: Path | None, patterns: Iterable[str]) -> list[Path]:
    """Stored tables whose names fit one of the patterns, in a folder and its subfolders, sorted.

    Those of trial runs of experiments, in folders ``quick``, mean nothing and are left out.

    Args:
        folder: Where to look; None finds nothing.
        patterns: Names without ``.parquet``, with wildcards.
    """
    if folder is None:
        return []
    found = {path for one in patterns for path in folder.rglob(f"{one}.parquet")}
    return sorted(path for path in found if _TRIAL not in path.relative_to(folder).parts)


def store_rows(
    rows: pd.DataFrame | Sequence[Mapping[str, Any]],
    manifest: Mapping[str, Any],
    folder: Path,
    name: str,
) -> list[Path]:
    """Write ``name.parquet`` and ``name.manifest.json``, each complete or not at all.

    A run killed in between leaves no manifest, never one that belongs to another table.

    Args:
        rows: The rows, with the same keys each, or a data frame of them.
        manifest: Where they come from, as plain data.
        folder: Where the files go; made if it is not there.
        name: Their name.

    Returns:
        The two files.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    import pandas as pd  # takes longer than the exact engine's values

    writable_folder(folder)
    table, origin = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    try:
        origin.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot replace {origin}: {error.strerror or error}; "
        msg += 'choose another folder="..."'
        raise ResourceError(msg) from error
    write_atomically(table, lambda path: frame.to_parquet(path, index=False))
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    write_atomically(origin, lambda path: path.write_text(text, encoding="utf-8"))
    return [table, origin]


def load_rows(folder: Path, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read the table and the manifest that :func:`store_rows` wrote.

    Raises:
        ResourceError: they are not there, or cannot be read as such.
    """
    import pandas as pd

    table, origin = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    for path in (table, origin):
        if not path.exists():
            msg = f"there is no {path.name} in {folder}; name the folder that it was saved in, "
            raise ResourceError(msg + "or compute it again")
    try:
        return pd.read_parquet(table), _read_object(origin)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{table} and its manifest cannot be read ({type(error).__name__}); "
        msg += "delete them and compute them again"
        raise ResourceError(msg) from error


def is_stored(folder: Path, name: str) -> bool:
    """Whether :func:`store_rows` has written under this name."""
    return (folder / f"{name}.parquet").exists() and (folder / f"{name}.manifest.json").exists()


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        msg = f"{path} holds no JSON object"
        raise ValueError(msg)  # noqa: TRY004, as for anything else that cannot be read
    return content

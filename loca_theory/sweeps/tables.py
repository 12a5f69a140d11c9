"""Tables on disk, each with a manifest that describes how it was computed."""

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
    """Find stored tables by name in a folder and its subfolders, sorted.

    Tables in folders named ``quick`` are skipped, because they come from trial runs.

    Args:
        folder: Folder to search; None finds nothing.
        patterns: Names without ``.parquet``, with wildcards; one of them must match.
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
    """Write ``name.parquet`` and ``name.manifest.json``, each atomically.

    A run killed between the two leaves no manifest, so a manifest always belongs to its table.

    Args:
        rows: The rows, all with the same keys, or a data frame of them.
        manifest: How the rows were computed, as plain data.
        folder: Folder of the files; created if it does not exist.
        name: Name of the files, without suffixes.

    Returns:
        The two files.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    import pandas as pd  # here, because this takes longer than computing exact values

    writable_folder(folder)
    table, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(list(rows))
    try:
        manifest_path.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot replace {manifest_path}: {error.strerror or error}; "
        msg += 'choose another folder="..."'
        raise ResourceError(msg) from error
    write_atomically(table, lambda path: frame.to_parquet(path, index=False))
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    write_atomically(manifest_path, lambda path: path.write_text(text, encoding="utf-8"))
    return [table, manifest_path]


def load_rows(folder: Path, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read the table and the manifest that :func:`store_rows` wrote.

    Raises:
        ResourceError: a file is missing or cannot be read.
    """
    import pandas as pd

    table, manifest_path = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    for path in (table, manifest_path):
        if not path.exists():
            msg = f"there is no {path.name} in {folder}; name the folder that it was saved in, "
            raise ResourceError(msg + "or compute it again")
    try:
        return pd.read_parquet(table), _read_object(manifest_path)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{table} and its manifest cannot be read ({type(error).__name__}); "
        msg += "delete them and compute them again"
        raise ResourceError(msg) from error


def is_stored(folder: Path, name: str) -> bool:
    """Whether :func:`store_rows` has written both files of this name."""
    return (folder / f"{name}.parquet").exists() and (folder / f"{name}.manifest.json").exists()


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        msg = f"{path} does not hold a JSON object"
        raise ValueError(msg)  # noqa: TRY004, like other unreadable content
    return content

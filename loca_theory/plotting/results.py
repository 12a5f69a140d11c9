"""Tables and figures on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib import style as styles

from loca_theory.errors import ResourceError
from loca_theory.sweeps import write_atomically
from loca_theory.sweeps.files import writable_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

# Fixed metadata: the same data gives the same bytes.
_METADATA = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def store_rows(
    rows: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any], folder: Path, name: str
) -> list[Path]:
    """Write ``name.parquet`` and ``name.manifest.json``, each complete or not at all.

    A run killed in between leaves no manifest, never one that belongs to another table.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    writable_folder(folder)
    table, origin = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    frame = pd.DataFrame(list(rows))
    try:
        origin.unlink(missing_ok=True)
    except OSError as error:
        msg = f"cannot replace {origin}: {error.strerror or error}; "
        msg += "choose another folder with --out"
        raise ResourceError(msg) from error
    write_atomically(table, lambda path: frame.to_parquet(path, index=False))
    text = json.dumps(manifest, indent=1, allow_nan=False) + "\n"
    write_atomically(origin, lambda path: _write_text(path, text))
    return [table, origin]


def load_rows(folder: Path, name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read the table and the manifest that :func:`store_rows` wrote.

    Raises:
        ResourceError: they are not there, or cannot be read as such.
    """
    table, origin = folder / f"{name}.parquet", folder / f"{name}.manifest.json"
    try:
        return pd.read_parquet(table), _read_object(origin)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"{table} and its manifest cannot be read ({type(error).__name__}); "
        msg += "delete them and run the command again"
        raise ResourceError(msg) from error


def is_stored(folder: Path, name: str) -> bool:
    """Whether :func:`store_rows` has written under this name."""
    return (folder / f"{name}.parquet").exists() and (folder / f"{name}.manifest.json").exists()


def save_figure(draw: Callable[[], Figure], folder: Path, name: str) -> list[Path]:
    """Draw a figure in the package's style and write ``name.png`` and ``name.pdf``.

    Raises:
        ResourceError: the folder cannot be written to.
    """
    writable_folder(folder)
    written = []
    # Not on top of the user's own settings: the same data gives the same picture everywhere.
    with (
        as_file(files("loca_theory.plotting") / "loca.mplstyle") as style,
        styles.context(style, after_reset=True),
    ):
        figure = draw()
        for suffix, metadata in _METADATA.items():
            path = folder / f"{name}{suffix}"
            write_atomically(
                path,
                lambda target, s=suffix, m=metadata: figure.savefig(
                    target, format=s[1:], metadata=m
                ),
            )
            written.append(path)
    return written


def _read_object(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        msg = f"{path} holds no JSON object"
        raise ValueError(msg)  # noqa: TRY004, as for anything else that cannot be read
    return content


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

"""Figures on disk."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import style as styles

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

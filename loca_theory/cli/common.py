"""Values of the options that all commands share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loca_theory.cli.printable import note

DEFAULT_OUT = Path("loca-results")


@dataclass(frozen=True)
class Common:
    """Values of the options that are not arguments of the Python functions."""

    output_format: str  # ``table``, ``json`` or ``csv``
    quiet: bool  # print no progress and no notes
    out: Path | None  # folder for results; None if the user gave none
    jobs: int = 1  # worker processes; −1 for one per core

    @property
    def folder(self) -> Path:
        """Folder for results."""
        return self.out or DEFAULT_OUT

    def note(self, text: str) -> None:
        """Print a note on stderr, unless the user asked for none."""
        if not self.quiet:
            note(text)

    def note_written(self, paths: Iterable[Path]) -> None:
        """Print a note on the files that were written to the folder."""
        names = ", ".join(str(path.relative_to(self.folder)) for path in paths)
        self.note(f"results are in {self.folder}: {names}")

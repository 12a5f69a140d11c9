"""One HTML page per result, complete in one file."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from html import escape
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loca_theory import _arguments
from loca_theory.checkpoints.report.column import Column
from loca_theory.errors import ResourceError
from loca_theory.plotting.page.analysis import analysis_page
from loca_theory.plotting.page.templates import render
from loca_theory.plotting.pictures import PICTURES, pictures_of
from loca_theory.plotting.styled_figure import png
from loca_theory.sweeps import Result
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis

_MOST_ROWS = 500


@dataclass(frozen=True)
class Page:
    """A self-contained HTML page: it loads no other files and needs no network.

    Attributes:
        html: The source of the page.
    """

    html: str = field(repr=False)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file.

        Args:
            path: The file; its folder is created if it does not exist.

        Raises:
            ResourceError: the file cannot be written.
        """
        path = _arguments.path("path", path)
        if path.is_dir():
            raise ResourceError(
                f"path must name a file, but {path} is a folder; use {path / 'report.html'}, say"
            )
        writable_folder(path.parent, "path")
        write_atomically(path, lambda target: target.write_text(self.html, encoding="utf-8"))
        return path

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its style does not affect the notebook."""
        frame = 'style="width: 100%; height: 45rem; border: 0"'
        return f'<iframe srcdoc="{escape(self.html)}" {frame}></iframe>'


def report(result: Result) -> Page:
    """Make the HTML page of a result: findings, pictures, tables, and how to reproduce it.

    The page of an analysis draws its own pictures: they show what is pointed at, and its tables
    can be sorted and filtered. That needs JavaScript; without it the page has the same tables. The
    other pages embed the pictures that :func:`plot` draws.

    Args:
        result: An analysis, or any other result that :func:`plot` draws.

    Returns:
        The page; notebooks show it, and ``save`` writes it.

    Raises:
        InvalidArgumentError: results of this type cannot be drawn.
    """
    if getattr(result, "command", None) == "analyze":
        return Page(analysis_page(cast("Analysis", result)))
    figures = {picture.title: picture.draw() for picture in pictures_of(result)}
    pictures = [
        (title, base64.b64encode(png(figure)).decode(), getattr(figure, "caption", ""))
        for title, figure in figures.items()
    ]
    rows = next(iter(result.to_json().values()))
    columns = [Column(name, itemgetter(name)) for name in map(str, result.to_frame())]
    first = f"The first {_MOST_ROWS} of {len(rows)} rows; to_frame() returns all."
    table = "Table", rows[:_MOST_ROWS], columns, first if len(rows) > _MOST_ROWS else ""
    _, title, _ = PICTURES[result.command]
    content = {"title": title, "pictures": pictures, "table": table, "manifest": result.manifest}
    return Page(render("report.html.j2", **content))

"""One HTML page per result, with the pictures embedded."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment

from loca_theory import _arguments
from loca_theory.errors import ResourceError
from loca_theory.plotting.canvas import png
from loca_theory.plotting.pictures import views
from loca_theory.sweeps import Result, write_atomically
from loca_theory.sweeps.files import writable_folder

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis
    from loca_theory.checkpoints.rows import Matrix
    from loca_theory.checkpoints.summary import MeanError

_MOST_ROWS = 500
_NAMES = {
    "simulate": "Reconstruction errors",
    "correlate": "Reconstruction under dependence",
    "toy": "The toy experiment",
    "verify": "Verdicts on the claims",
}


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
            msg = f"path must name a file, but {path} is a folder; use {path / 'report.html'}, say"
            raise ResourceError(msg)
        writable_folder(path.parent, "path")
        write_atomically(path, lambda target: target.write_text(self.html, encoding="utf-8"))
        return path

    def _repr_html_(self) -> str:
        """The page in a frame of its own, so that its style does not affect the notebook."""
        frame = 'style="width: 100%; height: 45rem; border: 0"'
        return f'<iframe srcdoc="{escape(self.html)}" {frame}></iframe>'


@dataclass(frozen=True)
class _Table:
    """A table of a page.

    Attributes:
        title: Heading of the table.
        columns: Names of the columns.
        rows: Texts of the cells, row by row.
        lead: Explanation below the heading.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    lead: str = ""


def report(result: Result, drawn: Sequence[Path] | None = None) -> Page:
    """Make the HTML page of a result: findings, pictures, tables, and how to reproduce it.

    Args:
        result: An analysis, or any other result that :func:`plot` draws.
        drawn: The files that :func:`save_pictures` returned for the result; None to draw them.

    Returns:
        The page; notebooks show it, and ``save`` writes it.

    Raises:
        InvalidArgumentError: results of this type cannot be drawn.
    """
    known = views(result)
    if drawn is None:
        images = [png(view.draw()) for view in known]
    else:
        images = [path.read_bytes() for path in drawn if path.suffix == ".png"]
    pictures = {
        view.title: base64.b64encode(image).decode()
        for view, image in zip(known, images, strict=True)
    }
    # Names come from files of unknown origin, so everything is escaped.
    source = files("loca_theory.plotting").joinpath("report.html.j2").read_text(encoding="utf-8")
    render = Environment(autoescape=True).from_string(source).render
    if result.command == "analyze":
        return Page(render(**_analysis(result), pictures=pictures, manifest=result.manifest))
    return Page(
        render(
            title=_NAMES[result.command],
            pictures=pictures,
            after=[_main_table(result)],
            manifest=result.manifest,
        )
    )


def _main_table(result: Result) -> _Table:
    frame = result.to_frame()
    rows = [[_text(value) for value in row] for row in frame.head(_MOST_ROWS).to_numpy(object)]
    hidden = len(frame) - len(rows)
    lead = f"The first {len(rows)} of {len(frame)} rows; to_frame() returns all." if hidden else ""
    return _Table("Table", list(frame.columns), rows, lead)


def _analysis(result: Any) -> dict[str, Any]:
    """The contents of the page of an analysis, as arguments of the template."""
    return {
        "title": f"Increments of {len(result.matrices)} "
        + ("matrix" if len(result.matrices) == 1 else "matrices"),
        "lead": _sources(result),
        "verdict": result.verdict,
        "config": result.config,
        "before": [_table(_ERROR, _MEAN, result.summary.all.errors, _LEAD)]
        if result.errors
        else [],
        "after": [_table("Every matrix", _MATRIX, result.matrices)]
        + ([_table("Skipped", _SKIPPED, result.skipped)] if result.skipped else []),
    }


def _sources(result: Analysis) -> str:
    grid = result.manifest["grid"]
    return " → ".join(str(grid[name]) for name in ("base", "finetuned") if grid[name])


def _table(
    title: str, columns: dict[str, Callable[[Any], str]], rows: Iterable[Any], lead: str = ""
) -> _Table:
    return _Table(title, list(columns), [[f(row) for f in columns.values()] for row in rows], lead)


def _text(value: Any) -> str:
    """Format a value for the table: four digits for floats, ``none`` for missing values."""
    if value is None or value != value:
        return "none"
    is_number = isinstance(value, Real) and not isinstance(value, bool | int)
    return f"{value:.4g}" if is_number else str(value)


def _number(form: str, value: float | None) -> str:
    return "none" if value is None else format(value, form)


_ERROR = "Reconstruction error of each method"
_LEAD = (
    "Relative error over all matrices, weighted by energy: of these increments, as expected for "
    "independent normal entries, of the same entries in random order, and as expected for the same "
    "singular values with random singular vectors: the error less this value is what the method's "
    "basis is worth. R is LoRA; F1 random and F2, F3 best Fourier locations; D the best DCT "
    "coefficients; S the largest entries."
)
_MEAN: dict[str, Callable[[MeanError], str]] = {
    "method": lambda one: one.method,
    "r": lambda one: str(one.r),
    "error": lambda one: f"{one.error:.3f}",
    "independent": lambda one: "not known" if one.iid_error is None else f"{one.iid_error:.3f}",
    "shuffled": lambda one: f"{one.shuffled_error:.3f}",
    "same singular values": lambda one: (
        "not known" if one.spectral_error is None else f"{one.spectral_error:.3f}"
    ),
    "best on": lambda one: f"{one.best_on} of {one.matrices}",
}
_MATRIX: dict[str, Callable[[Matrix], str]] = {
    "name": lambda row: row.name,
    "shape": lambda row: "×".join(map(str, row.shape)),
    "dtype": lambda row: row.dtype,
    "σ": lambda row: f"{row.sigma:.3g}",
    "zeros": lambda row: f"{row.zero_fraction:.1%}",
    "kurtosis": lambda row: f"{row.excess_kurtosis:+.3f}",
    "TV (95%)": lambda row: f"{row.tv:.4f} ({row.tv_low:.4f}–{row.tv_high:.4f})",
    "p": lambda row: f"{row.tv_p_value:.3f}",
    "p (paper)": lambda row: _number(".3f", row.tv_p_value_as_printed),
    "MP σ": lambda row: _number(".3g", row.mp_sigma),
    "MP distance": lambda row: _number(".3f", row.mp_distance),
    "outside bulk": lambda row: f"{row.outlier_mass:.0%}",
    "spikes": lambda row: str(row.spikes),
    "stable rank": lambda row: f"{row.stable_rank:.1f}",
    "tail α": lambda row: _number(".2f", row.tail_exponent),
    "note": lambda row: row.note,
}
_SKIPPED: dict[str, Callable[[Any], str]] = {
    "name": lambda one: one.name,
    "note": lambda one: one.reason,
}

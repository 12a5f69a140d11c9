"""The HTML report of an analysis, one file with its pictures inside."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from jinja2 import Environment

from loca_theory.plotting.dependence import draw_phase
from loca_theory.plotting.increments import (
    draw_errors_by_layer,
    draw_histograms,
    draw_p_values,
    draw_spectra,
    phase_marks,
)
from loca_theory.plotting.results import save_figure
from loca_theory.sweeps import write_atomically

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis


def draw_analysis(result: Analysis, folder: Path) -> dict[str, list[Path]]:
    """Write every figure of an analysis.

    Args:
        result: The analysis.
        folder: Where they go.

    Returns:
        For each title the files, the PNG first; nothing where no matrix was analysed.
    """
    if not result.matrices:
        return {}
    table, errors, shown = (result.to_frame(name) for name in ("matrices", "errors", "shown"))
    figures = {
        "Entries beside a normal law": ("analyze-entries", lambda: draw_histograms(shown)),
        "p-values by layer": ("analyze-p-values", lambda: draw_p_values(table)),
        "Eigenvalues beside the Marchenko–Pastur law": (
            "analyze-spectra",
            lambda: draw_spectra(shown),
        ),
    }
    if (shown["quantity"] == "weights").any():
        title = "Eigenvalues of the fine-tuned weights"
        figures[title] = ("analyze-weights", lambda: draw_spectra(shown, "weights"))
    if result.errors:
        ranks = sorted({error.r for error in result.errors})
        shape = Counter(one.shape for one in result.matrices).most_common(1)[0][0]
        marks = phase_marks(table, ranks)
        figures[f"What each method leaves, at the budget of r = {ranks[0]}"] = (
            "analyze-errors",
            lambda: draw_errors_by_layer(errors, ranks[0]),
        )
        figures[f"Phase diagram, every matrix at r = {', '.join(map(str, ranks))}"] = (
            "analyze-phase",
            lambda: draw_phase(pd.DataFrame(), shape, marks),
        )
    return {title: save_figure(draw, folder, name) for title, (name, draw) in figures.items()}


def write_html(result: Analysis, pictures: Mapping[str, Path], folder: Path) -> Path:
    """Write ``analyze.html``: nothing in it is fetched from elsewhere.

    Args:
        result: The analysis.
        pictures: PNG files by title.
        folder: Where it goes.
    """
    source = files("loca_theory.plotting").joinpath("report.html.j2").read_text(encoding="utf-8")
    # Names come from files that a user merely points at: everything is escaped.
    template = Environment(autoescape=True).from_string(source)
    images = {
        title: base64.b64encode(path.read_bytes()).decode() for title, path in pictures.items()
    }
    path = folder / "analyze.html"
    text = template.render(result=result, total=result.summary.all, images=images)
    write_atomically(path, lambda target: _write_text(target, text))
    return path


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

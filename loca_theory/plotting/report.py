"""The HTML report of an analysis, one file with its pictures inside."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from loca_theory.sweeps import load_rows, write_atomically

if TYPE_CHECKING:
    from loca_theory.checkpoints import Report


def draw_analysis(folder: Path) -> dict[str, list[Path]]:
    """Write every figure of an analysis, beside its stored tables.

    Args:
        folder: Where ``analyze-matrices``, ``analyze-errors`` and ``analyze-shown`` are; at least
            one matrix was analysed.

    Returns:
        For each title the files, the PNG first.
    """
    table, errors, shown = (
        load_rows(folder, f"analyze-{name}")[0] for name in ("matrices", "errors", "shown")
    )
    table = table[table["sigma"].notna()]
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
    if len(errors):
        r = int(errors["r"].min())
        ranks = sorted(errors["r"].unique())
        shape = Counter(tuple(one) for one in table["shape"]).most_common(1)[0][0]
        marks = phase_marks(table, ranks)
        figures[f"What each method leaves, at the budget of r = {r}"] = (
            "analyze-errors",
            lambda: draw_errors_by_layer(errors, r),
        )
        figures[f"Phase diagram, every matrix at r = {', '.join(map(str, ranks))}"] = (
            "analyze-phase",
            lambda: draw_phase(pd.DataFrame(), shape, marks),
        )
    return {title: save_figure(draw, folder, name) for title, (name, draw) in figures.items()}


def write_html(
    report: Report,
    summary: Mapping[str, Any],
    manifest: Mapping[str, Any],
    words: Sequence[str],
    pictures: Mapping[str, Path],
    folder: Path,
) -> Path:
    """Write ``analyze.html``: nothing in it is fetched from elsewhere.

    Args:
        report: The analysis.
        summary: Its totals.
        manifest: Its origin.
        words: The verdict and the configuration.
        pictures: PNG files by title.
        folder: Where it goes.
    """
    source = files("loca_theory.plotting").joinpath("report.html.j2").read_text(encoding="utf-8")
    # Names come from files that a user merely points at: everything is escaped.
    template = Environment(autoescape=True).from_string(source)
    images = {
        title: base64.b64encode(path.read_bytes()).decode() for title, path in pictures.items()
    }
    text = template.render(
        rows=report.rows,
        skipped=report.skipped,
        summary=summary,
        manifest=manifest,
        verdict=words[0],
        config=words[1],
        images=images,
    )
    path = folder / "analyze.html"
    write_atomically(path, lambda target: _write_text(target, text))
    return path


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

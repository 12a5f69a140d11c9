"""Figures of an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from loca_theory.checkpoints.form.forms import TYPES
from loca_theory.checkpoints.measure.settings import ANALYSED
from loca_theory.checkpoints.model.names import kind_of, layer_of
from loca_theory.errors import InvalidArgumentError
from loca_theory.increments import MarchenkoPastur, fit_bulk
from loca_theory.increments.spectrum import SPIKE_LEVEL
from loca_theory.plotting.canvas import BLACK, BLUE, Canvas, NamedPicture, mark, styled
from loca_theory.plotting.looks import TITLES, key, looks_of
from loca_theory.plotting.options import options
from loca_theory.plotting.results.methods import draw_measured
from loca_theory.plotting.results.phase import draw_phase, phase_marks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from loca_theory.checkpoints import Analysis

# Histograms of standardised entries reach from -_REACH to _REACH.
_REACH = 8
# Distance between the marks of two kinds of matrices of one layer, in layers.
_SHIFT = 0.08
# Level of the test of normality.
_LEVEL = 0.05
_OF = {"increment": "ΔW", "weights": "W′"}


def pictures_of(result: Analysis) -> list[NamedPicture]:
    """The pictures of an analysis of at least one matrix."""
    table, errors, data = (result.to_frame(name) for name in ("matrices", "errors", "figure_data"))
    pictures = [
        NamedPicture("entries", "Entries and the normal density", partial(draw_histograms, data)),
        NamedPicture(
            "p-values", "p-values of the normality test by layer", partial(draw_p_values, table)
        ),
        NamedPicture(
            "spectra", "Eigenvalues and the Marchenko–Pastur law", partial(draw_spectra, data)
        ),
    ]
    if (data["quantity"] == "weights").any():
        draw = partial(draw_spectra, data, "weights")
        pictures.append(NamedPicture("weights", "Eigenvalues of the fine-tuned weights", draw))
    if not result.errors:
        return pictures
    r, titles = int(errors["r"].min()), result.manifest["grid"].get("titles", {})
    draw = partial(draw_phase, marks=phase_marks(result, r), r=r)
    title = f"Who retains more of every matrix at r = {r}"
    pictures.append(NamedPicture("phase", title, draw, ("ranks",), r))
    draw = partial(draw_measured, errors, r, titles, result.off_budget)
    title, selects = f"Energy retained at the budget of r = {r}", ("methods", "ranks")
    pictures.append(NamedPicture("methods", title, draw, selects, r))
    draw = partial(draw_errors_by_layer, errors, r, titles)
    title = f"Reconstruction error by layer, budget of r = {r}"
    by_layer = NamedPicture("errors", title, draw, selects, r)
    # For a single matrix the errors by layer tell least, so they come last.
    return [by_layer, *pictures] if len(result.matrices) > 1 else [*pictures, by_layer]


@styled
def draw_histograms(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Histogram of the standardised entries and the normal density (the paper's Fig. 1a).

    ``table``: Table ``figure_data`` of an analysis; one panel per matrix.
    """
    canvas, rows = _panels(table, "entries", ax, sharey=True)
    z, captions = np.linspace(-5, 5, 400), []
    for axis, row in zip(canvas.axes[0], rows, strict=True):
        edges = np.linspace(-_REACH, _REACH, len(row["values"]) + 1)
        density = np.asarray(row["values"]) / np.diff(edges)
        axis.stairs(density, edges, fill=True, color=BLUE, alpha=0.35, label="entries")
        normal = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        axis.plot(z, normal, color=BLACK, lw=1, label="normal density")
        axis.set(xlim=(-5, 5), xlabel="entry / σ")
        axis.set_title(f"{_name(row)}: TV = {row['tv']:.4f}")
        text = f"{_name(row)}: σ = {row['sigma']:.2e}, excess kurtosis "
        captions.append(f"{text}{row['excess_kurtosis']:+.2f}")
    largest = max(row["tv"] for row in rows)
    canvas.headline(f"Total variation (TV) of the entries from a normal law: at most {largest:.4f}")
    canvas.caption(f"{'; '.join(captions)}.")
    canvas.legend(2)
    return canvas.figure


@styled
def draw_p_values(table: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """p-values of the normality test by layer, calibrated and as printed (Fig. 1b).

    ``table``: Table ``matrices`` of an analysis.
    """
    canvas = Canvas.of(ax, (7.2, 3.2), 1, 2, sharey=True)
    axes = canvas.axes[0]
    columns = {"tv_p_value": "calibrated test", "tv_p_value_as_printed": "the paper's test"}
    kinds = list(table.groupby("kind", sort=False))
    for axis, (column, title) in zip(axes, columns.items(), strict=True):
        for k, (kind, rows) in enumerate(kinds):
            # Many p-values are 0 or 1: draw the kinds side by side so that no mark hides another.
            x = rows["layer"].fillna(-1) + _SHIFT * (k - (len(kinds) - 1) / 2)
            color, marker = mark(k)
            y = rows[column].astype(float)
            axis.plot(x, y, marker, ms=4, color=color, label=str(kind), alpha=0.8)
        label = f"{_LEVEL:.0%}, below which it is rejected"
        axis.axhline(_LEVEL, color="#888888", lw=0.8, ls="--", label=label)
        axis.set(xlabel="layer", ylim=(-0.05, 1.05))
        if table["layer"].isna().any():
            positions = [-1, *range(int(table["layer"].fillna(-1).max()) + 1)]
            axis.set_xticks(positions, ["no layer", *map(str, positions[1:])], fontsize="x-small")
        else:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        accepted = int((table[column].astype(float) >= _LEVEL).sum())
        axis.set_title(f"{title}: {accepted} of {len(table)} could be normal")
        if missing := int(table[column].isna().sum()):
            text = f"{missing} of {len(table)}: the printed loop does not terminate"
            axis.text(0.5, 0.6, text, transform=axis.transAxes, ha="center", fontsize="x-small")
    axes[0].set_ylabel("p-value of normal entries")
    rejected = int((table["tv_p_value"].astype(float) < _LEVEL).sum())
    canvas.headline(f"Normal entries are rejected in {rejected} of {len(table)} matrices")
    canvas.legend(4, fontsize="x-small")
    return canvas.figure


@styled
def draw_spectra(
    table: pd.DataFrame, quantity: str = "increment", *, ax: Axes | None = None
) -> Figure:
    """Density of the eigenvalues and the fitted Marchenko–Pastur law (Fig. 1c).

    Each panel states how many eigenvalues lie above the upper edge, and the caption how many beyond
    the axis. A spectrum without a bulk cannot be fitted and is described in words. ``quantity``:
    ``increment`` for ΔW, ``weights`` for the fine-tuned W′ themselves (the figure of the appendix
    that justifies the assumptions).

    ``table``: Table ``figure_data`` of an analysis; one panel per matrix.
    """
    canvas, rows = _panels(table, quantity, ax)
    captions = []
    for axis, row in zip(canvas.axes[0], rows, strict=True):
        eigenvalues, sides = np.asarray(row["values"], dtype=float), (int(row["p"]), int(row["q"]))
        title, caption = _draw_spectrum(axis, eigenvalues, sides)
        axis.set_title(f"{_name(row)}: {title}")
        axis.set_xlabel(f"eigenvalue of {_OF[quantity]}ᵀ{_OF[quantity]} / (n σ²), σ of the bulk")
        captions.append(f"{_name(row)}: {caption}")
    canvas.caption(
        f"Edge: of the law of Tracy and Widom at {SPIKE_LEVEL:.0%}. The axes end at 1.5 edges of "
        f"the Marchenko–Pastur law and above most of its density. {'; '.join(captions)}."
    )
    canvas.legend(2)
    return canvas.figure


def _draw_spectrum(
    axis: Axes, eigenvalues: NDArray[np.float64], sides: tuple[int, int]
) -> tuple[str, str]:
    """Draw a spectrum; return how many eigenvalues are beyond the edge, and more of them."""
    bulk, (p, q) = fit_bulk(eigenvalues, *sides), sides
    if bulk.sigma is None:
        axis.set(xticks=[], yticks=[])
        return "no bulk", f"{bulk.spikes} of {len(eigenvalues)} eigenvalues hold all the energy"
    unit = bulk.sigma**2
    values = eigenvalues / max(p, q) / unit
    law = MarchenkoPastur(min(p, q) / max(p, q), bulk.sigma)
    low, high = (edge / unit for edge in law.support)
    inside = values[values <= 1.5 * high]
    bins = np.linspace(0, 1.5 * high, 61)
    weights = np.full(len(inside), 1 / (len(values) * (bins[1] - bins[0])))
    axis.hist(inside, list(bins), weights=weights, color=BLUE, alpha=0.35, label="eigenvalues")
    x = np.linspace(low, high, 400)[1:-1]
    axis.plot(x, law.pdf(x * unit) * unit, color=BLACK, lw=1, label="Marchenko–Pastur")
    top = np.quantile(law.pdf(np.linspace(low, high, 200)[5:-1] * unit) * unit, 0.97)
    axis.set(ylim=(0, 1.8 * top), xlim=(0, 1.5 * high))
    beyond = int((values > 1.5 * high).sum())
    caption = f"{beyond} beyond the axis, {bulk.outlier_mass:.0%} of the energy outside the bulk"
    return f"{bulk.spikes} of {len(values)} above the edge", caption


def _name(row: Mapping[str, Any]) -> str:
    """What tells a matrix from the others of a picture."""
    kind, layer = kind_of(row["name"]), layer_of(row["name"])
    return kind if layer is None else f"{kind}, layer {layer}"


@styled
def draw_errors_by_layer(
    errors: pd.DataFrame, r: int, titles: Mapping[str, str], *, ax: Axes | None = None
) -> Figure:
    """Reconstruction error by layer and kind of matrix, also for the same entries shuffled.

    ``errors``: table ``errors`` of an analysis; ``titles``: those of the user's own methods.
    """
    usual = {method.name for method in ANALYSED}
    names = dict.fromkeys(errors["method"])
    shown = [name for name in dict.fromkeys((*TYPES, *names)) if name in names]
    shown = [name for name in shown if name in TYPES or name not in usual] or [*names]
    table = errors[(errors["r"] == r) & errors["method"].isin(shown)]
    if table["layer"].notna().any():
        table = table[table["layer"].notna()]
    else:
        table = table.assign(layer=table.groupby("method").cumcount())
    kinds = list(table.groupby("kind"))
    columns = 2 if len(kinds) == 4 else 3
    canvas = Canvas.grid(ax, len(kinds), columns, (3.0, 2.3), (0.4, 0.6), sharey=True)
    looks = looks_of(shown)
    for axis, (kind, of_kind) in zip(canvas.axes.flat, kinds, strict=False):
        for method in shown:
            line = of_kind[of_kind["method"] == method].sort_values("layer")
            layer = line["layer"].to_numpy(float)
            look, label = looks[method], options().label(method)
            plot = partial(axis.plot, layer, color=look.color, linestyle=look.dashes)
            plot(line["error"], marker="o", ms=3, label=label)
            if method in ("LoRA", "LoCA") and line["shuffled_error"].any():
                shuffled = line["shuffled_error"].astype(float)
                plot(shuffled, marker="x", ms=4, label=f"{label}, shuffled")
        axis.set_title(str(kind), fontsize="small")
        axis.set_ylim(0, 1.02)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    canvas.label("layer", "" if canvas.is_own else "relative error")
    if canvas.is_own:
        canvas.figure.supylabel("relative error", fontsize=rcParams["axes.labelsize"])
    counts = table.loc[table.groupby("name")["error"].idxmin(), "method"].value_counts()
    words = ", ".join(f"{name} for {count}" for name, count in counts.items())
    canvas.headline(f"Smallest error at the budget of r = {r}: {words} of {counts.sum()} matrices")
    of_methods = key(shown, {**TITLES, **titles})
    canvas.caption(f"{of_methods} Shuffled: the same entries in random order.")
    canvas.legend(6, fontsize="x-small")
    return canvas.figure


def _panels(
    table: pd.DataFrame, quantity: str, ax: Axes | None, **sharing: Any
) -> tuple[Canvas, list[Any]]:
    """A panel for the density of a quantity of each matrix, and the rows of the table."""
    rows = table[table["quantity"] == quantity].to_dict("records")
    if not rows:
        raise InvalidArgumentError(
            f"the table has no {quantity}, because the analysed checkpoint does not hold them "
            "(an adapter, for example, does not hold the weights)"
        )
    canvas = Canvas.of(ax, (3.6 * len(rows), 3.0), 1, len(rows), **sharing)
    canvas.axes[0, 0].set_ylabel("density")
    return canvas, rows

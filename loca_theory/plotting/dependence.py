"""Figures of the dependence study: errors, crossings, phase diagram."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.dependence import STRUCTURES, Protocol, limit_boundary
from loca_theory.plotting.canvas import Canvas, View, styled
from loca_theory.plotting.lines import (
    BAND,
    LOOKS,
    TITLES,
    Look,
    key_lines,
    label_ends,
    looks_of,
    titles_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from loca_theory.dependence import CorrelationResult

_PANEL_WIDTH, _PANEL_HEIGHT, _LABEL_GAP = 3.7, 2.3, 0.16
_PROTOCOL_TITLES = {
    Protocol.SAME_DRAW: "same draw for every method",
    Protocol.IID_REFERENCE: "D at independence",
}
_RANK_COLORS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#e69f00")


def views(result: CorrelationResult) -> list[View]:
    """The pictures of a study: crossings, errors and, with one random spike, the phase diagram.

    If the study has only one structure, the errors come first.
    """
    losses, crossings = result.to_frame("rows"), result.to_frame("crossings")
    grid, titles = result.manifest["grid"], titles_of(result.manifest)
    found = [
        View(name, f"Error under {name} dependence", partial(draw_losses, losses, name, titles))
        for name in dict.fromkeys(losses["structure"])
    ]
    where = View("crossings", "Crossings of low rank and DCT", partial(draw_crossings, crossings))
    found.insert(1 if len(found) == 1 else 0, where)
    if "spiked" in grid["structures"] and grid["spikes"] == 1:
        draw = partial(draw_phase, crossings, tuple(grid["shape"]))
        found.append(View("phase", "Phase diagram", draw))
    return found


@styled
def draw_losses(
    table: pd.DataFrame,
    structure: str,
    titles: Mapping[str, str] = TITLES,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Error against the parameter of one structure: one row per rank, one column per protocol.

    This is the paper's sim_3.

    Args:
        table: ``rows`` of a :class:`~loca_theory.dependence.Study`.
        structure: Name of the structure.
        titles: Titles of the methods by name.
        ax: Axes for a single panel; None for a new figure.
    """
    table = table[table["structure"] == structure]
    ranks = sorted(table["r"].unique())
    protocols = [p for p in Protocol if p in set(table["protocol"])]
    key = _key(table, titles)
    size = (_PANEL_WIDTH * len(protocols), _PANEL_HEIGHT * len(ranks) + 0.15 * (len(key) + 1))
    canvas = Canvas.of(ax, size, len(ranks), len(protocols), sharex=True, sharey="row")
    axes, looks = canvas.axes, looks_of(table["method"])
    for row, r in zip(axes, ranks, strict=True):
        for axis, protocol in zip(row, protocols, strict=True):
            panel = table[(table["r"] == r) & (table["protocol"] == protocol)]
            _draw_lines(axis, panel, looks)
            axis.set_title(f"r = {r}: {_protocol_title(protocol, panel)}")
        row[0].set_ylabel("relative error")
    name = STRUCTURES[structure].parameter
    for axis in axes[-1]:
        axis.set_xlabel(f"{structure}: {'ρ' if name == 'rho' else name}")
    canvas.caption("\n".join(key), x=0.01, ha="left", linespacing=1.4)
    return canvas.figure


def _protocol_title(protocol: Protocol, panel: pd.DataFrame) -> str:
    if protocol is Protocol.SAME_DRAW:
        return _PROTOCOL_TITLES[protocol]
    fixed = list(dict.fromkeys(panel["method"][panel["draws"].isna()]))
    # A longer title would run into the next panel.
    return f"{', '.join(fixed) if len(', '.join(fixed)) <= 16 else 'all but R'} at independence"


def _key(table: pd.DataFrame, titles: Mapping[str, str]) -> list[str]:
    present = list(dict.fromkeys(table["method"]))
    draws = int(table["draws"].max())
    line = (
        f"Simulated lines: mean of {draws} draws (the same at every value), band ±2 standard errors"
    )
    return [*key_lines(present, titles, 140), line]


def _draw_lines(axis: Axes, panel: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    ends = []
    for method, line in panel.groupby("method", sort=False):
        ordered = line.sort_values("value")
        look = looks[str(method)]
        x, y = ordered["value"].to_numpy(float), ordered["error"].to_numpy(float)
        marker = "o" if len(x) == 1 else None
        axis.plot(x, y, color=look.color, linestyle=look.dashes, marker=marker)
        band = BAND * ordered["standard_error"].to_numpy(float)
        if band.any():
            axis.fill_between(x, y - band, y + band, color=look.color, alpha=0.2, lw=0)
        ends.append((y[-1], str(method)))
    values = panel["value"].unique()
    if len(values) == 1:
        axis.set_xlim(values[0] - 0.5, values[0] + 0.5)
    axis.margins(x=0.02)
    label_ends(axis, ends, looks, _LABEL_GAP / _PANEL_HEIGHT)


@styled
def draw_crossings(crossings: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Parameter values beyond which R has a smaller error than D.

    There is one column per protocol, one row of panels per parameter and one mark per rank.

    Args:
        crossings: ``crossings`` of a :class:`~loca_theory.dependence.Study`.
        ax: Axes for a single panel; None for a new figure.
    """
    groups = {
        parameter: list(dict.fromkeys(rows["structure"]))
        for parameter, rows in crossings.groupby("parameter", sort=False)
    }
    protocols = [p for p in Protocol if p in set(crossings["protocol"])]
    ranks = list(dict.fromkeys(crossings["r"]))
    counts = [len(names) for names in groups.values()]
    size = (4.2 * len(protocols) + 1.0, 0.62 * sum(counts) + 0.75 * len(counts))
    canvas = Canvas.of(ax, size, len(groups), len(protocols), sharey="row", height_ratios=counts)
    axes = canvas.axes
    for row, (parameter, structures) in zip(axes, groups.items(), strict=True):
        for axis, protocol in zip(row, protocols, strict=True):
            mine = crossings[crossings["structure"].isin(structures)]
            start, end = mine["searched_from"].min(), mine["searched_to"].max()
            mine = mine[mine["protocol"] == protocol]
            for i, name in enumerate(structures):
                _draw_crossing_line(axis, mine[mine["structure"] == name], i, ranks)
            axis.set_xlabel("ρ" if parameter == "rho" else str(parameter))
            pad = 0.02 * (end - start) or 0.5
            axis.set_xlim(start - pad, end + pad)
            axis.set_ylim(len(structures) - 0.4, -0.6)
        row[0].set_yticks(range(len(structures)), structures)
    for axis, protocol in zip(axes[0], protocols, strict=True):
        axis.set_title(_PROTOCOL_TITLES[protocol])
    handles = [
        axes[0][0].plot([], [], "o", color=_RANK_COLORS[k % len(_RANK_COLORS)], label=f"r = {r}")[0]
        for k, r in enumerate(ranks)
    ]
    canvas.legend(handles, [one.get_label() for one in handles], ncols=len(ranks))
    return canvas.figure


_FINDINGS = {
    "D throughout": "D retains more throughout",
    "R throughout": "R retains more throughout",
    "R first": "R retains more at the start",
}


def _draw_crossing_line(
    axis: Axes, mine: pd.DataFrame, height: float, ranks: Sequence[int]
) -> None:
    without = []
    for k, r in enumerate(ranks):
        row = mine[mine["r"] == r].iloc[0]
        if pd.isna(row["crossing"]):
            without.append((r, str(row["finding"])))
            continue
        color = _RANK_COLORS[k % len(_RANK_COLORS)]
        position = height + 0.1 * (k - (len(ranks) - 1) / 2)
        axis.plot([row["low"], row["high"]], [position, position], color=color, lw=2)
        axis.plot(row["crossing"], position, "o", color=color, ms=4)
    for finding in dict.fromkeys(finding for _, finding in without):
        some = [r for r, own in without if own == finding]
        which = "" if len(some) == len(ranks) else f"r = {', '.join(map(str, some))}: "
        axis.annotate(
            which + _FINDINGS[finding],
            (0.98, height),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=7,
            color="#666666",
        )


@styled
def draw_phase(
    crossings: pd.DataFrame,
    shape: tuple[int, int],
    marks: pd.DataFrame | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Phase diagram: the better method by rank and by the fraction of energy outside the bulk.

    The line is the closed-form boundary for one random spike in large matrices of the same aspect
    ratio; the points are crossings simulated at a finite size.

    Args:
        crossings: ``crossings`` of a study with the structure ``spiked``; may be empty.
        shape: (p, q) of that study, or of the matrices marked.
        marks: Matrices to mark on the diagram: columns ``ratio`` (r/min(p, q)), ``fraction``
            (of the energy outside the bulk) and ``label``.
        ax: Axes to draw into; None for a new figure.
    """
    smaller, aspect = min(shape), min(shape) / max(shape)
    found = crossings
    if len(crossings):
        found = crossings[
            (crossings["structure"] == "spiked")
            & (crossings["protocol"] == Protocol.SAME_DRAW)
            & crossings["crossing"].notna()
        ]
    positions = [(0.36, 0.5)]
    if len(found):
        positions += zip(found["r"] / smaller, found["high"], strict=True)
    if marks is not None:
        positions += zip(marks["ratio"], marks["fraction"], strict=True)
    right = min(1.1 * max(x for x, _ in positions), 0.5)
    top = min(1.2 * max(y for _, y in positions), 1.0)
    canvas = Canvas.of(ax, (5.2, 3.8))
    axis = canvas.axes[0, 0]
    ratio = np.concatenate([np.linspace(0.001, 0.02, 20), np.linspace(0.025, 0.499, 80)])
    fraction = np.array([limit_boundary(value, aspect) for value in ratio])
    axis.plot(ratio, fraction, color="#000000", label="boundary, large matrices")
    axis.fill_between(ratio, fraction, 0, color=LOOKS["D"].color, alpha=0.12, lw=0)
    axis.fill_between(ratio, fraction, 1, color=LOOKS["R"].color, alpha=0.12, lw=0)
    if len(found):
        x, y = found["r"].to_numpy(float) / smaller, found["crossing"].to_numpy(float)
        error = np.stack([y - found["low"].to_numpy(float), found["high"].to_numpy(float) - y])
        size = f"K = {shape[0]}" if aspect == 1 else f"{shape[0]} × {shape[1]}"
        label = f"simulated, {size}"
        axis.errorbar(x, y, error, fmt="o", color="#000000", ms=4, capsize=2, label=label)
    if marks is not None:
        _draw_marks(axis, marks)
    axis.set(xlim=(0, right), ylim=(0, top), xlabel="rank fraction r/min(p, q)",
             ylabel="fraction of the energy outside the bulk")  # fmt: skip
    text = {"transform": axis.transAxes, "fontsize": 9}
    axis.text(0.08, 0.9, "LoRA retains more", color=LOOKS["R"].color, **text)
    axis.text(0.55, 0.08, "DCT selection retains more", color=LOOKS["D"].color, **text)
    axis.legend(loc="upper right")
    return canvas.figure


def _draw_marks(axis: Axes, marks: pd.DataFrame) -> None:
    for k, (label, some) in enumerate(marks.groupby("label", sort=False)):
        color, mark = _RANK_COLORS[k % len(_RANK_COLORS)], "xov^s"[k // len(_RANK_COLORS) % 5]
        axis.plot(
            some["ratio"],
            some["fraction"],
            mark,
            color=color,
            ms=4,
            label=str(label),
            clip_on=False,
        )

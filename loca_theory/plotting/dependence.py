"""Figures of the dependence study: errors, crossings, phase diagram."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.dependence.closed_forms import energy_retained_with_spike, limit_boundary
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity.limits import coefficient_fraction, low_rank_fraction
from loca_theory.expressivity.methods.names import display_name
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
    Protocol.IID_REFERENCE: "LoCA at independence",
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
    where = View("crossings", "Crossings of LoRA and LoCA", partial(draw_crossings, crossings))
    found.insert(1 if len(found) == 1 else 0, where)
    if grid["options"].get("spiked") == 1:
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
        table: ``rows`` of a :class:`~loca_theory.dependence.study.Study`.
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
    fixed = ", ".join(map(display_name, dict.fromkeys(panel["method"][panel["draws"].isna()])))
    # A longer title would run into the next panel.
    return f"{fixed if len(fixed) <= 16 else 'all but LoRA'} at independence"


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
        crossings: ``crossings`` of a :class:`~loca_theory.dependence.study.Study`.
        ax: Axes for a single panel; None for a new figure.
    """
    groups = {
        parameter: list(dict.fromkeys(rows["structure"]))
        for parameter, rows in crossings.groupby("parameter", sort=False)
    }
    protocols = [p for p in Protocol if p in set(crossings["protocol"])]
    ranks = list(dict.fromkeys(crossings["r"]))
    counts = [len(names) for names in groups.values()]
    size = (4.2 * len(protocols) + 1.0, 0.45 * sum(counts) + 0.75 * len(counts))
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
    "D throughout": "LoCA retains more throughout",
    "R throughout": "LoRA retains more throughout",
    "R first": "LoRA retains more at the start",
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
            (0.5, height),
            xycoords=("axes fraction", "data"),
            ha="center",
            va="center",
            fontsize=7,
            color="#666666",
            backgroundcolor="white",
        )


@styled
def draw_phase(
    crossings: pd.DataFrame | None = None,
    shape: tuple[int, int] = (1, 1),
    marks: pd.DataFrame | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Phase diagram: the better of LoRA and LoCA, from the singular values alone.

    Low rank retains the energy fraction of the r largest singular values, the height on the
    diagram. The line is what selection retains of a large matrix whose stable rank is large,
    whatever its singular values (:func:`~loca_theory.expressivity.limits.coefficient_fraction`).
    With crossings, three more things are drawn: the line of noise with one random spike, for which
    selection retains a little more; the crossings simulated at a finite size; independent entries.

    Args:
        crossings: ``crossings`` of a study with the structure ``spiked``; None for matrices only.
        shape: (p, q) of that study.
        marks: Matrices to mark on the diagram: columns ``coefficients`` (fraction of the
            coefficients that the budget pays for), ``fraction`` (of the energy that low rank
            retains) and ``label``.
        ax: Axes to draw into; None for a new figure.
    """
    canvas = Canvas.of(ax, (5.2, 4.2))
    axis = canvas.axes[0, 0]
    right = 0.4 if marks is None else min(1.15 * float(marks["coefficients"].max()), 1.0)
    x = right * np.linspace(0, 1, 200) ** 2
    boundary = np.array([coefficient_fraction(value) for value in x])
    axis.plot(x, boundary, color="#000000", label="boundary if no direction dominates")
    axis.fill_between(x, boundary, 0, color=LOOKS["D"].color, alpha=0.12, lw=0)
    axis.fill_between(x, boundary, 1, color=LOOKS["R"].color, alpha=0.12, lw=0)
    if crossings is not None:
        _draw_spike(axis, crossings, shape)
    if marks is not None:
        _draw_marks(axis, marks)
    axis.set(xlim=(0, right), ylim=(0, 1))
    axis.set_xlabel("fraction of the coefficients in the budget (r/K for K × K)")
    axis.set_ylabel("energy fraction of the r largest singular values")
    text = {"transform": axis.transAxes, "fontsize": 9, "ha": "right"}
    above = min(boundary[-1] + 0.05, 0.94)
    axis.text(0.97, above, "LoRA retains more", color=LOOKS["R"].color, **text)
    axis.text(0.97, 0.05, "LoCA retains more", color=LOOKS["D"].color, **text)
    canvas.legend(*axis.get_legend_handles_labels(), ncols=4 if crossings is None else 2,
                  fontsize=7)  # fmt: skip
    return canvas.figure


def _draw_spike(axis: Axes, crossings: pd.DataFrame, shape: tuple[int, int]) -> None:
    """The boundary for noise with one spike, its simulated crossings, and noise alone."""
    smaller, aspect = min(shape), min(shape) / max(shape)
    found = crossings[
        (crossings["structure"] == "spiked")
        & (crossings["protocol"] == Protocol.SAME_DRAW)
        & crossings["crossing"].notna()
    ]
    ratio = 0.499 * np.linspace(0.03, 1, 80) ** 2
    x = ratio * (1 + aspect) / 2
    y = [
        energy_retained_with_spike(limit_boundary(value, aspect), f)
        for value, f in zip(ratio, x, strict=True)
    ]
    axis.plot(x, y, "--", color="#000000", lw=1, label="boundary, noise with one spike")
    if len(found):
        x = found["r"].to_numpy(float) / smaller * (1 + aspect) / 2
        low, y, high = (
            np.array(
                [energy_retained_with_spike(*pair) for pair in zip(found[name], x, strict=True)]
            )
            for name in ("low", "crossing", "high")
        )
        size = f"K = {shape[0]}" if aspect == 1 else f"{shape[0]} × {shape[1]}"
        axis.errorbar(x, y, [y - low, high - y], fmt="o", color="#000000", ms=4, capsize=2,
                      label=f"crossing with one spike, simulated, {size}")  # fmt: skip
    low_rank = [low_rank_fraction(value, aspect) for value in ratio]
    axis.plot(
        ratio * (1 + aspect) / 2,
        low_rank,
        ":",
        color="#666666",
        lw=1,
        label="LoRA at independent entries",
    )


def _draw_marks(axis: Axes, marks: pd.DataFrame) -> None:
    for k, (label, some) in enumerate(marks.groupby("label", sort=False)):
        color, mark = _RANK_COLORS[k % len(_RANK_COLORS)], "xov^s"[k // len(_RANK_COLORS) % 5]
        axis.plot(
            some["coefficients"],
            some["fraction"],
            mark,
            color=color,
            ms=4,
            label=str(label),
            clip_on=False,
        )

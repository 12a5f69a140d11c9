"""Figures of the dependence study: losses, crossings, phase diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.dependence import STRUCTURES, Protocol, limit_boundary
from loca_theory.plotting.error_curves import BAND, LOOKS, key_lines, label_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

_PANEL_WIDTH, _PANEL_HEIGHT, _LABEL_GAP = 3.7, 2.3, 0.16
_PROTOCOL_TITLES = {
    Protocol.SAME_DRAW: "same draw for every curve",
    Protocol.IID_REFERENCE: "D, M1, M2, U at independence",
}
_RANK_COLORS = ("#0072b2", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#e69f00")


def draw_losses(table: pd.DataFrame, structure: str) -> Figure:
    """Error against the parameter of one structure: a row a rank, a column a protocol (sim_3).

    Args:
        table: ``rows`` of a :class:`~loca_theory.dependence.Study`.
        structure: Which structure.
    """
    table = table[table["structure"] == structure]
    ranks = sorted(table["r"].unique())
    protocols = [p for p in Protocol if p in set(table["protocol"])]
    key = _key(table)
    height = _PANEL_HEIGHT * len(ranks) + 0.15 * (len(key) + 1)
    figure = Figure(figsize=(_PANEL_WIDTH * len(protocols), height))
    axes = figure.subplots(len(ranks), len(protocols), squeeze=False, sharex=True, sharey="row")
    for row, r in zip(axes, ranks, strict=True):
        for axis, protocol in zip(row, protocols, strict=True):
            panel = table[(table["r"] == r) & (table["protocol"] == protocol)]
            _draw_lines(axis, panel)
            axis.set_title(f"r = {r}: {_PROTOCOL_TITLES[protocol]}")
        row[0].set_ylabel("relative error")
    name = STRUCTURES[structure].parameter
    for axis in axes[-1]:
        axis.set_xlabel(f"{structure}: {'ρ' if name == 'rho' else name}")
    text = "\n".join(key)
    figure.supxlabel(text, x=0.01, ha="left", fontsize=7, color="#444444", linespacing=1.4)
    return figure


def _key(table: pd.DataFrame) -> list[str]:
    present = list(dict.fromkeys(table["curve"]))
    draws = int(table["draws"].max())
    line = (
        f"Simulated lines: mean of {draws} draws, the same at every value, band ±2 standard errors"
    )
    return [*key_lines(present, 140), line]


def _draw_lines(axis: Axes, panel: pd.DataFrame) -> None:
    ends = []
    for curve, line in panel.groupby("curve", sort=False):
        ordered = line.sort_values("value")
        look = LOOKS[str(curve)]
        x, y = ordered["value"].to_numpy(float), ordered["error"].to_numpy(float)
        axis.plot(x, y, color=look.color, linestyle=look.dashes)
        band = BAND * ordered["standard_error"].to_numpy(float)
        if band.any():
            axis.fill_between(x, y - band, y + band, color=look.color, alpha=0.2, lw=0)
        ends.append((y[-1], str(curve)))
    axis.margins(x=0.02)
    label_ends(axis, ends, _LABEL_GAP / _PANEL_HEIGHT)


def draw_crossings(crossings: pd.DataFrame) -> Figure:
    """Where R overtakes D: a panel a protocol, a line a structure, a mark a rank.

    Args:
        crossings: ``crossings`` of a :class:`~loca_theory.dependence.Study`.
    """
    structures = list(dict.fromkeys(crossings["structure"]))
    protocols = [p for p in Protocol if p in set(crossings["protocol"])]
    ranks = sorted(crossings["r"].unique())
    figure = Figure(figsize=(_PANEL_WIDTH * len(protocols) + 0.6, 0.55 * len(structures) + 1.2))
    axes = figure.subplots(1, len(protocols), squeeze=False, sharey=True)[0]
    for axis, protocol in zip(axes, protocols, strict=True):
        for i, structure in enumerate(structures):
            mine = crossings[
                (crossings["structure"] == structure) & (crossings["protocol"] == protocol)
            ]
            _draw_crossing_line(axis, mine, i, ranks)
        axis.set_title(_PROTOCOL_TITLES[protocol])
        axis.set_xlabel("value of the parameter")
        axis.set_xlim(crossings["searched_from"].min(), _end(crossings))
        axis.set_ylim(len(structures) - 0.4, -0.6)
    axes[0].set_yticks(range(len(structures)))
    axes[0].set_yticklabels([f"{name} ({STRUCTURES[name].parameter})" for name in structures])
    handles = [
        axes[0].plot([], [], "o", color=_RANK_COLORS[k % len(_RANK_COLORS)], label=f"r = {r}")[0]
        for k, r in enumerate(ranks)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(ranks))
    return figure


def _end(crossings: pd.DataFrame) -> float:
    """Far enough for every crossing, and no farther than was searched."""
    reached = crossings["high"].max()
    searched = float(crossings["searched_to"].max())
    return searched if pd.isna(reached) else min(searched, 1.15 * float(reached))


def _draw_crossing_line(
    axis: Axes, mine: pd.DataFrame, height: float, ranks: Sequence[int]
) -> None:
    if mine["crossing"].isna().all():
        low, high = mine["searched_from"].min(), mine["searched_to"].max()
        axis.annotate(
            f"no crossing in [{low:g}, {high:g}]",
            (0, height),
            xytext=(6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color="#666666",
            backgroundcolor="white",
        )
        return
    for k, r in enumerate(ranks):
        row = mine[mine["r"] == r].iloc[0]
        if pd.isna(row["crossing"]):
            continue
        color = _RANK_COLORS[k % len(_RANK_COLORS)]
        place = height + 0.1 * (k - (len(ranks) - 1) / 2)
        axis.plot([row["low"], row["high"]], [place, place], color=color, lw=2)
        axis.plot(row["crossing"], place, "o", color=color, ms=4)


def draw_phase(crossings: pd.DataFrame, size: int, marks: pd.DataFrame | None = None) -> Figure:
    """Phase diagram: which method wins, by rank and by the share of energy in random directions.

    The line is the closed-form boundary for one random spike in large matrices; the points are
    crossings simulated at a finite size.

    Args:
        crossings: ``crossings`` of a study with the structure ``spiked``.
        size: min(p, q) of that study.
        marks: Matrices to place on the diagram: columns ``ratio`` (r/K), ``share`` (of the energy
            outside the bulk) and ``label``.
    """
    figure = Figure(figsize=(5.2, 3.8))
    axis = figure.subplots()
    ratio = np.concatenate([np.linspace(0.001, 0.02, 20), np.linspace(0.025, 0.4, 60)])
    share = np.array([limit_boundary(value) for value in ratio])
    axis.plot(ratio, share, color="#000000", label="boundary, large matrices")
    axis.fill_between(ratio, share, 0, color=LOOKS["D"].color, alpha=0.12, lw=0)
    axis.fill_between(ratio, share, 1, color=LOOKS["R"].color, alpha=0.12, lw=0)
    found = crossings[
        (crossings["structure"] == "spiked")
        & (crossings["protocol"] == Protocol.SAME_DRAW)
        & crossings["crossing"].notna()
    ]
    if len(found):
        x, y = found["r"].to_numpy(float) / size, found["crossing"].to_numpy(float)
        error = np.stack([y - found["low"].to_numpy(float), found["high"].to_numpy(float) - y])
        axis.errorbar(
            x, y, error, fmt="o", color="#000000", ms=4, capsize=2, label=f"simulated, K = {size}"
        )
    if marks is not None:
        axis.plot(marks["ratio"], marks["share"], "x", color="#0072b2", ms=5)
        for row in marks.itertuples():
            axis.annotate(str(row.label), (row.ratio, row.share), fontsize=6, xytext=(3, 2),
                          textcoords="offset points")  # fmt: skip
    axis.set(xlim=(0, 0.4), ylim=(0, 0.6), xlabel="rank share r/K",
             ylabel="share of the energy in one random direction")  # fmt: skip
    axis.text(0.03, 0.45, "LoRA keeps more", color=LOOKS["R"].color, fontsize=9)
    axis.text(0.22, 0.1, "DCT selection keeps more", color=LOOKS["D"].color, fontsize=9)
    axis.legend(loc="upper right")
    return figure

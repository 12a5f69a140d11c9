"""Figures of the dependence study: errors, crossings, phase diagram."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.dependence.design import Protocol
from loca_theory.expressivity import Budget
from loca_theory.expressivity.spending import off_budgets
from loca_theory.plotting.canvas import COLORS, Canvas, NamedPicture, styled
from loca_theory.plotting.lines import TITLES, draw_lines, key_lines, looks_of, titles_of
from loca_theory.plotting.results.phase import draw_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from loca_theory.dependence import CorrelationResult

_PANEL_WIDTH, _PANEL_HEIGHT, _LABEL_GAP = 3.7, 2.3, 0.16
# Longer titles would run into the next panel.
_PROTOCOL_TITLES = {
    Protocol.SAME_DRAW: "all on the same matrix",
    Protocol.IID_REFERENCE: "only LoRA on dependent entries",
}


def views(result: CorrelationResult) -> list[NamedPicture]:
    """The pictures of a study: crossings, errors and, with one random spike, the phase diagram.

    If the study has only one structure, the errors come first.
    """
    losses, crossings = result.to_frame("rows"), result.to_frame("crossings")
    grid, titles = result.manifest["grid"], titles_of(result.manifest)
    found = [
        NamedPicture(
            name, f"Error under {name} dependence", partial(draw_losses, losses, name, titles)
        )
        for name in dict.fromkeys(losses["structure"])
    ]
    where = NamedPicture(
        "crossings", "Crossings of LoRA and LoCA", partial(draw_crossings, crossings)
    )
    found.insert(1 if len(found) == 1 else 0, where)
    if grid["options"].get("spiked") == 1:
        draw = partial(draw_phase, crossings, tuple(grid["shape"]))
        found.append(NamedPicture("phase", "Phase diagram", draw))
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

    This is the paper's sim_3. ``table``: ``rows`` of a
    :class:`~loca_theory.dependence.study.Study`.
    """
    table = table[table["structure"] == structure]
    ranks = sorted(table["r"].unique())
    protocols = [p for p in Protocol if p in set(table["protocol"])]
    line = f"Simulated lines: mean of {int(table['draws'].max())} draws (the same at every value)"
    key = [*key_lines(table["method"].unique(), titles, 140), f"{line}, band ±2 standard errors"]
    p, q = map(int, table[["p", "q"]].iloc[0])
    off = off_budgets(table["method"], [Budget(p, q, int(r)) for r in ranks])
    if costs := [f"{name} {text}" for name, text in off.items()]:
        key.append(f"Off the budget: {', '.join(costs)} of it")
    size = (_PANEL_WIDTH * len(protocols), _PANEL_HEIGHT * len(ranks) + 0.15 * (len(key) + 1))
    canvas = Canvas.of(ax, size, len(ranks), len(protocols), sharex=True, sharey="row")
    looks = looks_of(table["method"])
    for row, r in zip(canvas.axes, ranks, strict=True):
        for axis, protocol in zip(row, protocols, strict=True):
            panel = table[(table["r"] == r) & (table["protocol"] == protocol)]
            lines = [(str(method), rows) for method, rows in panel.groupby("method", sort=False)]
            draw_lines(axis, lines, "value", looks, _LABEL_GAP / _PANEL_HEIGHT, alpha=0.2, ms=6)
            values = panel["value"].unique()
            if len(values) == 1:
                axis.set_xlim(values[0] - 0.5, values[0] + 0.5)
            axis.set_title(f"r = {r}: {_PROTOCOL_TITLES[protocol]}")
    name = table["parameter"].iloc[0]
    canvas.label(f"{structure}: {'ρ' if name == 'rho' else name}", "relative error")
    canvas.caption("\n".join(key), x=0.01, ha="left", linespacing=1.4)
    return canvas.figure


@styled
def draw_crossings(crossings: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Parameter values beyond which R has a smaller error than D.

    There is one column per protocol, one row of panels per parameter and one mark per rank.

    ``crossings``: ``crossings`` of a :class:`~loca_theory.dependence.study.Study`.
    """
    groups = list(crossings.groupby("parameter", sort=False))
    protocols = [p for p in Protocol if p in set(crossings["protocol"])]
    colors = dict(zip(dict.fromkeys(crossings["r"]), cycle(COLORS), strict=False))
    counts = [rows["structure"].nunique() for _, rows in groups]
    size = (4.2 * len(protocols) + 1.0, 0.45 * sum(counts) + 0.75 * len(counts))
    canvas = Canvas.of(ax, size, len(groups), len(protocols), sharey="row", height_ratios=counts)
    for row, (parameter, rows) in zip(canvas.axes, groups, strict=True):
        structures = list(dict.fromkeys(rows["structure"]))
        start, end = rows["searched_from"].min(), rows["searched_to"].max()
        pad = 0.02 * (end - start) or 0.5
        for axis, protocol in zip(row, protocols, strict=True):
            mine = rows[rows["protocol"] == protocol]
            for i, name in enumerate(structures):
                _draw_crossing_line(axis, mine[mine["structure"] == name], i, colors)
            name = "ρ" if parameter == "rho" else parameter
            axis.set_xlabel(f"{name} from which LoRA retains more")
            axis.set(xlim=(start - pad, end + pad), ylim=(len(structures) - 0.4, -0.6))
        row[0].set_yticks(range(len(structures)), structures)
    for axis, protocol in zip(canvas.axes[0], protocols, strict=True):
        axis.set_title(_PROTOCOL_TITLES[protocol])
    for r, color in colors.items():
        canvas.axes[0, 0].plot([], [], "o", color=color, label=f"r = {r}")
    same = crossings[crossings["protocol"] == Protocol.SAME_DRAW].groupby("structure")["crossing"]
    if len(same):
        overtaken = (same.count() > 0).sum()
        words = f"LoRA overtakes LoCA under {overtaken} of {len(same)} kinds of dependence"
        canvas.headline(f"On the same matrix, {words}")
    canvas.legend(len(colors))
    return canvas.figure


_FINDINGS = {
    "LoCA throughout": "LoCA retains more throughout",
    "LoRA throughout": "LoRA retains more throughout",
    "LoRA at the start": "LoRA retains more at the start",
}


def _draw_crossing_line(
    axis: Axes, mine: pd.DataFrame, height: float, colors: Mapping[int, str]
) -> None:
    """The crossing of one structure at each rank, and what is found at the ranks without one."""
    without: dict[str, list[int]] = {}
    for k, (r, color) in enumerate(colors.items()):
        row = mine[mine["r"] == r].iloc[0]
        if pd.isna(row["crossing"]):
            without.setdefault(row["finding"], []).append(r)
            continue
        position = height + 0.1 * (k - (len(colors) - 1) / 2)
        axis.plot([row["low"], row["high"]], [position, position], color=color, lw=2)
        axis.plot(row["crossing"], position, "o", color=color, ms=4)
    for finding, some in without.items():
        which = "" if len(some) == len(colors) else f"r = {', '.join(map(str, some))}: "
        axis.annotate(which + _FINDINGS[finding], (0.5, height), fontsize=7, color="#666666",
                      xycoords=("axes fraction", "data"), ha="center", va="center",
                      backgroundcolor="white")  # fmt: skip

"""Figures of the dependence study: errors, crossings, phase diagram."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from loca_theory._words import ends
from loca_theory.dependence.design import Protocol
from loca_theory.expressivity import Budget
from loca_theory.expressivity.spending import off_budgets
from loca_theory.plotting.canvas import COLORS, Canvas, NamedPicture, styled
from loca_theory.plotting.lines import draw_lines
from loca_theory.plotting.looks import TITLES, key, looks_of, titles_of
from loca_theory.plotting.results.phase import draw_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from loca_theory.dependence import CorrelationResult

_PANEL_WIDTH, _PANEL_HEIGHT = 3.7, 2.3
# Longer titles would run into the next panel.
_PROTOCOL_TITLES = {
    Protocol.SAME_DRAW: "all on the same matrix",
    Protocol.IID_REFERENCE: "only LoRA on dependent entries",
}
_SHORT_TITLES = {
    Protocol.SAME_DRAW: "on the same matrix",
    Protocol.IID_REFERENCE: "alone on dependent entries",
}
# Meanings of the structures' parameters.
_STRENGTHS = {
    "shared-mean": "variance ρ of a shared mean",
    "equicorrelated": "correlation ρ of all entries",
    "row-equicorrelated": "correlation ρ within rows",
    "ar1": "correlation ρ of neighbours",
    "blocks": "correlation ρ within blocks",
    "scaled": "exponent of decaying variances",
    "spiked": "energy of random directions",
    "power-law": "exponent of the spectrum",
}


def pictures_of(result: CorrelationResult) -> list[NamedPicture]:
    """The pictures of a study: crossings, errors and, with one random spike, the phase diagram.

    If the study has only one structure, the errors come first.
    """
    losses, crossings = result.to_frame("rows"), result.to_frame("crossings")
    grid, titles = result.manifest["grid"], titles_of(result.manifest)
    pictures = [
        NamedPicture(
            name,
            f"Error under {name} dependence",
            partial(draw_losses, losses, name, titles),
            ("methods", "ranks"),
        )
        for name in dict.fromkeys(losses["structure"])
    ]
    where = NamedPicture(
        "crossings", "Crossings of LoRA and LoCA", partial(draw_crossings, crossings), ("ranks",)
    )
    pictures.insert(1 if len(pictures) == 1 else 0, where)
    if grid["options"].get("spiked") == 1:
        draw = partial(draw_phase, crossings, tuple(grid["shape"]))
        pictures.append(NamedPicture("phase", "Phase diagram", draw, ("ranks",)))
    return pictures


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
    size = (_PANEL_WIDTH * len(protocols), _PANEL_HEIGHT * len(ranks))
    canvas = Canvas.of(ax, size, len(ranks), len(protocols), sharex=True, sharey="row")
    looks = looks_of(table["method"])
    for row, r in zip(canvas.axes, ranks, strict=True):
        for axis, protocol in zip(row, protocols, strict=True):
            panel = table[(table["r"] == r) & (table["protocol"] == protocol)]
            lines = [(str(method), rows) for method, rows in panel.groupby("method", sort=False)]
            draw_lines(canvas, axis, lines, "value", looks, alpha=0.2, ms=6)
            values = panel["value"].unique()
            if len(values) == 1:
                axis.set_xlim(values[0] - 0.5, values[0] + 0.5)
            axis.set_title(f"r = {r}: {_PROTOCOL_TITLES[protocol]}")
    name = str(table["parameter"].iloc[0])
    canvas.label(_strength(structure, name), "error / expected energy")
    if {"LoRA", "LoCA"} <= set(table["method"]):
        canvas.headline(_overtaking(table, name))
    line = f"Simulated lines: mean of {int(table['draws'].max())} draws (the same at every value), "
    caption = f"{key(table['method'].unique(), titles)} {line}band ±2 standard errors."
    p, q = map(int, table[["p", "q"]].iloc[0])
    off = off_budgets(table["method"], [Budget(p, q, int(r)) for r in ranks])
    if costs := [f"{name} {text}" for name, text in off.items()]:
        caption += f" Methods that spend another budget: {', '.join(costs)} of it."
    canvas.caption(caption)
    return canvas.figure


def _strength(structure: str, parameter: str) -> str:
    """The meaning of a structure's parameter, in words."""
    own = f"{structure} ({'ρ' if parameter == 'rho' else parameter})"
    return _STRENGTHS.get(structure.partition(":")[0], own)


def _overtaking(table: pd.DataFrame, parameter: str) -> str:
    """From which strength on LoRA has a smaller error than LoCA, over all ranks."""
    texts = []
    errors = table.pivot_table("error", ["protocol", "r", "value"], "method")
    symbol = "ρ" if parameter == "rho" else parameter
    for protocol in (kind for kind in Protocol if kind in errors.index):
        of_protocol = errors.loc[protocol]
        smaller = of_protocol[of_protocol["LoRA"] < of_protocol["LoCA"]].reset_index()
        first = smaller.groupby("r")["value"].min().tolist()
        where = f"from {symbol} = {ends(first, 'g')}" if first else "nowhere"
        texts.append(f"{_SHORT_TITLES[protocol]} {where}")
    return f"LoRA overtakes LoCA: {', '.join(texts)}"


@styled
def draw_crossings(crossings: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Strength of dependence beyond which LoRA has a smaller error than LoCA.

    Each kind of dependence has a row, and in it each protocol a bar from the least to the greatest
    crossing of the ranks, or the words that there is none.

    ``crossings``: ``crossings`` of a :class:`~loca_theory.dependence.study.Study`.
    """
    structures = crossings.groupby("structure", sort=False)["parameter"].first()
    protocols = [p for p in Protocol if p in set(crossings["protocol"])]
    canvas = Canvas.of(ax, (6.4, 0.45 * len(structures) + 1.1))
    axis = canvas.axes[0, 0]
    for k, protocol in enumerate(protocols):
        rows = crossings[crossings["protocol"] == protocol]
        color = COLORS[k]
        axis.plot([], [], "o-", lw=4, ms=7, color=color, label=_PROTOCOL_TITLES[protocol])
        for height, name in enumerate(structures.index):
            position = height + _APART * (k - (len(protocols) - 1) / 2)
            _draw_range(axis, rows[rows["structure"] == name], position, color)
    names = [_strength(str(name), str(parameter)) for name, parameter in structures.items()]
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(0, 1.08 * max(0.1, crossings["crossing"].max()))
    ranks = sorted(crossings["r"].unique())
    between = f"from r = {ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else f"of r = {ranks[0]}"
    axis.set_xlabel(
        f"strength, of what the row names, from which LoRA retains more\nbars: {between}"
    )
    canvas.caption(f"Bars: {between}.")
    same = crossings[crossings["protocol"] == Protocol.SAME_DRAW].groupby("structure")["crossing"]
    if len(same):
        overtaken = (same.count() > 0).sum()
        words = f"LoRA overtakes LoCA under {overtaken} of {len(same)} kinds of dependence"
        canvas.headline(f"On the same matrix, {words}")
    canvas.legend(2)
    return canvas.figure


_FINDINGS = {
    "LoCA throughout": "LoCA retains more throughout",
    "LoRA throughout": "LoRA retains more throughout",
    "LoRA at the start": "LoRA retains more at the start",
}
# Distance between the bars of two protocols, in rows.
_APART = 0.34


def _draw_range(axis: Axes, rows: pd.DataFrame, height: float, color: str) -> None:
    """A bar over the crossings of all ranks, and what is found at the ranks without one."""
    crossings = rows["crossing"].dropna()
    if len(crossings):
        ends = [crossings.min(), crossings.max()]
        axis.plot(ends, [height, height], "o-", lw=4, ms=7, color=color)
    without = rows[rows["crossing"].isna()]
    words = []
    for finding, group in without.groupby("finding", sort=False):
        ranks = "" if len(group) == len(rows) else f" (r = {', '.join(map(str, group['r']))})"
        words.append(f"{_FINDINGS[str(finding)]}{ranks}")
    if words:
        x = crossings.max() if len(crossings) else 0.0
        axis.annotate(
            "; ".join(words),
            (x, height),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize="x-small",
            color=color,
        )

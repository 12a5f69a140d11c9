"""Figure of the increments that methods learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from experiments.figures.runs import every_run_diverged
from loca_theory.expressivity.limits import low_rank_fraction
from loca_theory.plotting.canvas import Canvas, styled

_DIRECTIONS = 4


@styled
def draw_learned_increments(table: pd.DataFrame) -> Figure:
    """The increments of each method in the first and the last layer; each has its own scale.

    Below each is the fraction of the energy in its 4 largest singular values; stripes have 100%.
    """
    if table.empty:
        raise every_run_diverged()
    pictures = dict(iter(table.groupby(["title", "layer"])["values"]))
    methods, layers = (list(dict.fromkeys(table[name])) for name in ("title", "layer"))
    layers = list(dict.fromkeys((layers[0], layers[-1])))
    size = (1.55 * len(methods) + 0.8, 1.8 * len(layers) + 0.7)
    canvas = Canvas.of(None, size, len(layers), len(methods))
    for row, layer in zip(canvas.axes, layers, strict=True):
        for axis, method in zip(row, methods, strict=True):
            values = np.array(pictures[method, layer].tolist(), dtype=float)
            limit = float(np.quantile(np.abs(values), 0.995)) or 1.0
            axis.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
            energies = np.linalg.svd(values, compute_uv=False) ** 2
            fraction = energies[:_DIRECTIONS].sum() / (energies.sum() or 1)
            axis.set_xlabel(f"{fraction:.0%} in {_DIRECTIONS} directions", fontsize=8)
        row[0].set_ylabel(_short(layer), fontsize=8)
    for axis, method in zip(canvas.axes[0], methods, strict=True):
        axis.set_title(method, fontsize=8)
    text = f"What each method learned as ΔW: is its energy in {_DIRECTIONS} directions?"
    canvas.headline(text)
    side = len(pictures[methods[0], layers[0]])
    independent = low_rank_fraction(min(_DIRECTIONS / side, 1.0))
    canvas.caption(
        "Block means, red positive, blue negative, each panel at its scale. Percentages: energy "
        f"of the {_DIRECTIONS} largest directions; independent entries have {independent:.0%}."
    )
    return canvas.figure


def _short(layer: str) -> str:
    """The number and the kind of a layer, from its full name."""
    parts = layer.removesuffix(".weight").split(".")
    numbers = [part for part in parts if part.isdigit()]
    return f"layer {numbers[-1]}\n{parts[-1]}" if numbers else parts[-1]

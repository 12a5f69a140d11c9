"""Figure of what ``extract`` gains by looking inside rounding cells.

Left, the fraction of a known change that it misses; right, its gain on published fine-tunes.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import BLUE, GREY, HEADLINE, RED, Picture, styled

_FORMAT = "bfloat16"
_MERGED = ("merged lora, r = 4", "merged lora, r = 32")
_DASHES = ("-", "--")
# The least error that is drawn.
_LEAST = 1e-8
_NOTICEABLE = 1.0


@styled
def draw_rounded(table: pd.DataFrame) -> Figure:
    """Left: error on merged LoRAs, in bfloat16. Right: gain on published fine-tunes, all formats.

    ``table``: the adapters of ``experiments.published.rounded``.
    """
    figure = Picture(figsize=(7.6, 3.1))
    left, right = figure.subplots(1, 2)
    rows = table[(table["format"] == _FORMAT) & (table["method"] == "lora")]
    for study, dashes in zip(_MERGED, _DASHES, strict=True):
        r = int(study.rpartition(" ")[2])
        of_rank = rows[(rows["study"] == study) & (rows["r"] == r)].sort_values("scale")
        for column, name, color in (
            ("retained_nearest", "SVD of what is stored", RED),
            ("retained", "inside its rounding cells", BLUE),
        ):
            lost = (1 - of_rank[column]).clip(lower=_LEAST)
            left.plot(
                of_rank["scale"], lost, color=color, linestyle=dashes, label=f"r = {r}, {name}"
            )
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("median change, in steps of the weights")
    left.set_ylabel("fraction of the change missed")
    left.set_title("A LoRA merged into bfloat16")
    left.legend(fontsize=7)
    full = table[~table["study"].str.startswith("merged")]
    gains = 100 * (full["retained"] - full["retained_nearest"])
    right.axhline(0, color=GREY, linewidth=0.8)
    right.plot(full["changed"], gains, ".", color=BLUE, markersize=3, alpha=0.6)
    right.set_xlabel("fraction of the entries that changed")
    right.set_ylabel("gain in retained energy, points")
    right.set_title(f"{len(full):,} adapters of published fine-tunes")
    gained = int((gains > _NOTICEABLE).sum())
    words = f"{gained} of {len(full):,} other adapters gain more than a point"
    figure.suptitle(f"Rounding cells bring back a merged LoRA; {words}", **HEADLINE)
    return figure

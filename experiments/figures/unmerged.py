"""Figure of trained LoRAs that come back from merged models, beside the truncated SVD."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import BLACK, BLUE, HEADLINE, Picture, styled

_DTYPE, _MERGE = "bfloat16", "float32 adapter"
_SVD = "#d55e00"
# Lower end of the logarithmic axis, where a fraction of 0 is drawn; no SVD comes so close.
_FLOOR = 3e-6
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1)


@styled
def draw_unmerged(table: pd.DataFrame) -> Figure:
    """A point per layer: error of the recovered change, and entries that merging again changes.

    Both are plotted against r(p + q) per changed entry. Layers without a claimed rank show only the
    SVD.
    """
    table = table[(table["dtype"] == _DTYPE) & (table["merge"] == _MERGE)]
    table = table.assign(
        other=(1 - table["identical"]).clip(lower=_FLOOR), other_svd=1 - table["identical_svd"]
    )
    recovered = table[table["found_rank"].notna()]
    figure = Picture(figsize=(7.6, 3.2))
    axes = figure.subplots(1, 2, sharex=True)
    panels = {
        "error ‖recovered − ΔW‖² / ‖ΔW‖²": ("error_svd", "error"),
        "entries that differ, merged again": ("other_svd", "other"),
    }
    for axis, (label, (svd, cells)) in zip(axes, panels.items(), strict=True):
        axis.plot(table["unknowns"], table[svd], "x", color=_SVD, markersize=4)
        axis.plot(recovered["unknowns"], recovered[cells], "o", color=BLUE, markersize=3.5)
        axis.set(xscale="log", yscale="log")
        axis.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axis.set_xticks([], minor=True)
        axis.set_ylabel(label, fontsize=8.5)
        axis.axvline(0.5, color=BLACK, linewidth=0.8, linestyle=":")
        axis.set_xlabel("r(p + q) per changed entry")
    for rank, rows in table.groupby("rank"):
        # Beside the uppermost mark of a cluster, which is the rightmost.
        highest = rows.nlargest(1, "error_svd")[["unknowns", "error_svd"]].to_numpy()[0]
        offset = {"xytext": (-4, 2), "textcoords": "offset points"}
        axes[0].annotate(f"rank {rank:g}", highest, **offset, ha="right", fontsize=7.5)
    right = int((recovered["found_rank"] == recovered["rank"]).sum())
    ours, svds = recovered["other"].median(), recovered["other_svd"].median()
    came_back = f"In {right} of {len(table)} layers the merged LoRA comes back with its rank"
    differ = f"a median of {ours:.2%} of the entries differs, with the SVD {svds:.0%}"
    figure.suptitle(f"{came_back}; merged again,\n{differ}", **HEADLINE)
    labels = {
        "unmerge": ("o", BLUE),
        "truncated SVD at the true rank": ("x", _SVD),
    }
    marks = [
        axes[0].plot([], [], mark, color=color, label=label)[0]
        for label, (mark, color) in labels.items()
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, fontsize=8)
    return figure

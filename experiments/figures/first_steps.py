"""Figure of the first step and the training loss in PEFT's public comparison."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.peft_benchmark.analysis import joined
from loca_theory.plotting.canvas import Picture, styled

_PANELS = {"MetaMathQA": "Text (Llama-3.2-3B)", "image-gen": "Images (FLUX.2-klein)"}
# Types that are named in the picture, by their names in PEFT.
_NAMED = {"FOURIERFT": "FourierFT", "WAVEFT": "WaveFT", "SHIRA": "SHiRA", "VERA": "VeRA",
          "MISS": "MiSS", "IA3": "IA³", "C3A": "C3A"}  # fmt: skip


@styled
def draw_first_steps(runs: pd.DataFrame, steps: pd.DataFrame) -> Figure:
    """Training loss over the first step of each run, coloured by its trained numbers."""
    table = joined(runs, steps)
    table = table[table["is_fitted"]]
    figure = Picture(figsize=(9.0, 3.6))
    for axis, (task, title) in zip(figure.subplots(1, 2), _PANELS.items(), strict=True):
        own = table[table["task"] == task]
        points = axis.scatter(
            own["frobenius"],
            own["train_loss"],
            c=own["trained"],
            norm="log",
            cmap="viridis",
            s=28,
            edgecolor="white",
            linewidth=0.5,
        )
        _label(axis, own)
        axis.set(xscale="log", xlabel="first step ‖ΔW‖ of all adapted layers", title=title)
        axis.set_ylabel("training loss at the end")
        figure.colorbar(points, ax=axis, label="trained numbers")
    return figure


def _label(axis: Axes, runs: pd.DataFrame) -> None:
    """Name one run of each named type, and of LoRA that of rank 32."""
    lora = runs[runs["experiment"].str.match(r"lora--.*(rank32$|default)")]
    others = runs[runs["peft_type"].isin(list(_NAMED))].drop_duplicates("peft_type")
    for names, chosen in (("LoRA", lora), ("", others)):
        for _, run in chosen.iterrows():
            name = names or _NAMED[run["peft_type"]]
            point = (run["frobenius"], run["train_loss"])
            axis.annotate(name, point, xytext=(4, 3), textcoords="offset points", fontsize=7.5)

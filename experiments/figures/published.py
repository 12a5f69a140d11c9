"""Figure of what LoRA, LoCA and plain entries retain of fine-tunes that others published."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from loca_theory.plotting.canvas import Picture, styled
from loca_theory.plotting.lines import LOOKS

STUDIES = {
    "sre": "MiniLM → sentences of another domain",
    "rxnfp": "BERT of reactions → classes",
    "rxnfp-10k": "BERT of reactions → classes, fewer reactions",
    "mhc-1": "LSTM, peptides → 147 alleles",
    "mhc-2": "LSTM, peptides → 135 alleles",
    "mhc-hlap": "LSTM, peptides → mass spectrometry",
    "chgnet": "CHGNet, potential → other functional",
    "ani": "ANI, potential → coupled cluster",
}
_RANK, _ACCOUNTING = 4, "paper"
_TITLES = {"R": "LoRA", "D": "LoCA, best locations", "S": "largest plain entries"}
_FORMS = {method: (title, LOOKS[method].color) for method, title in _TITLES.items()}


@styled
def draw_published(*tables: pd.DataFrame) -> Figure:
    """One row per study: mean and quartiles over its matrices, and who retains most in how many."""
    figure = Picture(figsize=(7.6, 0.62 * len(tables) + 1.2))
    axis = figure.subplots()
    for row, table in enumerate(tables):
        wide = _wide(table)
        best = wide.idxmax(axis=1).value_counts()
        for offset, (method, (_, color)) in zip((-0.22, 0, 0.22), _FORMS.items(), strict=True):
            low, high = wide[method].quantile([0.25, 0.75])
            axis.plot([low, high], [row + offset] * 2, color=color, linewidth=4, alpha=0.35)
            axis.plot(wide[method].mean(), row + offset, "o", color=color, markersize=5)
            count = f"{best.get(method, 0):.0f}"
            axis.text(1.07 + 0.1 * list(_FORMS).index(method), row, count, color=color,
                      ha="center", va="center")  # fmt: skip
        axis.text(1.38, row, f"of {len(wide)}", ha="center", va="center", color="#555555")
    axis.text(1.2, -0.72, "retains most in", ha="center", fontsize=8, color="#555555")
    axis.set_yticks(range(len(tables)), [STUDIES[table["study"].iloc[0]] for table in tables])
    axis.set_ylim(len(tables) - 0.5, -0.9)
    axis.set_xlim(0, 1.45)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    axis.grid(visible=False, axis="y")
    text = f"energy of ΔW retained at the budget of LoRA of rank {_RANK}, where a chosen location "
    text += "costs a number\ndot: mean over matrices; bar: the middle half of them"
    axis.set_xlabel(text, fontsize=8, loc="left")
    axis.set_title("What retains most of a published fine-tune depends on the network", loc="left")
    marks = [axis.plot([], [], "o", color=color, label=name)[0] for name, color in _FORMS.values()]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _wide(table: pd.DataFrame) -> pd.DataFrame:
    """A matrix per row, and what each form retains of it."""
    mine = table[(table["r"] == _RANK) & (table["accounting"] == _ACCOUNTING)]
    mine = mine[mine["method"].isin(_FORMS)]
    return mine.pivot_table(index=["pair", "name"], columns="method", values="retained")

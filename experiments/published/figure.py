"""Figure of what LoRA, LoCA and plain entries retain of published fine-tunes.

``python -m experiments.published.figure`` draws the tables in ``figures/published``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
import pandas as pd
from matplotlib.figure import Figure

from loca_theory.cli.command import Command
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture, save_figure, styled

RANK, ACCOUNTING = 4, "paper"
NAMES = {
    "sre": "MiniLM → sentences of another domain",
    "rxnfp": "BERT of reactions → classes",
    "rxnfp-10k": "BERT of reactions → classes, fewer reactions",
    "mhc-1": "LSTM, peptides → 147 alleles",
    "mhc-2": "LSTM, peptides → 135 alleles",
    "mhc-hlap": "LSTM, peptides → mass spectrometry",
    "chgnet": "CHGNet, potential → other functional",
    "ani": "ANI, potential → coupled cluster",
}
FORMS = {"R": ("LoRA", "#0072b2"), "D": ("LoCA, best locations", "#d55e00"),
         "S": ("largest plain entries", "#009e73")}  # fmt: skip


@styled
def draw(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """One row per study: mean and quartiles over its matrices, and who retains most in how many."""
    figure = Picture(figsize=(7.6, 0.62 * len(tables) + 1.2))
    axis = figure.subplots()
    for row, (study, table) in enumerate(tables.items()):
        wide = wide_table(table)
        best = wide.idxmax(axis=1).value_counts()
        for offset, (method, (_, color)) in zip((-0.22, 0, 0.22), FORMS.items(), strict=True):
            low, high = wide[method].quantile([0.25, 0.75])
            axis.plot([low, high], [row + offset] * 2, color=color, linewidth=4, alpha=0.35)
            axis.plot(wide[method].mean(), row + offset, "o", color=color, markersize=5)
            share = f"{best.get(method, 0):.0f}"
            axis.text(1.07 + 0.1 * list(FORMS).index(method), row, share, color=color,
                      ha="center", va="center")  # fmt: skip
        axis.text(1.38, row, f"of {len(wide)}", ha="center", va="center", color="#555555")
    axis.text(1.2, -0.72, "retains most in", ha="center", fontsize=8, color="#555555")
    axis.set_yticks(range(len(tables)), [NAMES[study] for study in tables])
    axis.set_ylim(len(tables) - 0.5, -0.9)
    axis.set_xlim(0, 1.45)
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(f"energy of ΔW retained at the budget of LoRA of rank {RANK}, where a chosen location "
                    "costs a number\ndot: mean over matrices; bar: the middle half of them",
                    fontsize=8, loc="left")  # fmt: skip
    axis.set_title("What retains most of a published fine-tune depends on the network", loc="left")
    marks = [axis.plot([], [], "o", color=color, label=name)[0] for name, color in FORMS.values()]
    figure.legend(handles=marks, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def wide_table(table: pd.DataFrame, r: int = RANK, accounting: str = ACCOUNTING) -> pd.DataFrame:
    """A matrix per row, and what each form retains of it."""
    mine = table[(table["r"] == r) & (table["accounting"] == accounting)]
    mine = mine[mine["method"].isin(FORMS)]
    return mine.pivot_table(index=["pair", "name"], columns="method", values="retained")


@click.command(cls=Command)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              default=Path("figures/published"), show_default=True)  # fmt: skip
def main(out: Path) -> None:
    """Draw the figure of the tables in a folder."""
    paths = {name: out / f"{name}-retained.parquet" for name in NAMES}
    tables = {name: pd.read_parquet(path) for name, path in paths.items() if path.exists()}
    if not tables:
        msg = f"{out} has no tables; run python -m experiments.published first"
        raise InvalidArgumentError(msg)
    save_figure(draw(tables), out, "published")


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.figure")

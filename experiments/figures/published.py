"""Bar charts of which form of adapter retains most of each published fine-tune, with controls."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from experiments.published.measures import FORMS
from experiments.published.page import ACCOUNTINGS, RANK, STUDIES, counts, winners
from loca_theory.plotting.canvas import HEADLINE, Picture, styled
from loca_theory.plotting.looks import LOOKS

_COLORS = {form: LOOKS[form].color for form in FORMS}
# Position and thickness of the bars of a study, from the top.
_ROLES = {
    "increment": (-0.25, 0.3),
    "base": (0.0, 0.13),
    "tuned": (0.15, 0.13),
    "unrelated": (0.3, 0.13),
}
_KEY = (
    "thick bars: changes ΔW; thin bars, from above: the weights before and after, and differences "
    "of unrelated networks"
)


@styled
def draw_published(table: pd.DataFrame) -> Figure:
    """Fractions of the matrices in which each form retains most, by study, role and accounting."""
    best = winners(table)
    figure = Picture(figsize=(11.0, 0.5 * best["study"].nunique() + 1.6))
    axes = figure.subplots(1, len(ACCOUNTINGS), sharey=True)
    figure.suptitle(_leaders(best[best["role"] == "increment"]), **HEADLINE)
    for axis, (accounting, price) in zip(axes, ACCOUNTINGS.items(), strict=True):
        draw_studies(axis, best[best["accounting"] == accounting], _ROLES)
        axis.set_title(f"an index costs {price}")
    label = f"matrices in which a form retains most, at the numbers of rank {RANK}"
    axes[1].set_xlabel(f"{label}\n{_KEY}", fontsize=8)
    figure.legend(handles=form_key(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _leaders(increments: pd.DataFrame) -> str:
    """Which forms retain most in the most matrices of a study, and LoRA in how many of them."""
    parts = increments.groupby(["accounting", "study"])
    leaders = parts["best"].agg(lambda best: best.value_counts().idxmax())
    leading = " or ".join(form for form in FORMS if form in {*leaders})
    lora = ", ".join(str((leaders[name] == "LoRA").sum()) for name in ACCOUNTINGS)
    return (
        f"{leading} retains most of ΔW in the most matrices of a study: "
        f"LoRA in {lora} of {increments['study'].nunique()}, from left to right"
    )


def draw_studies(axis: Axes, rows: pd.DataFrame, roles: Mapping[str, tuple[float, float]]) -> None:
    """A bar per study and role, stacked by the fraction of matrices in which each form wins."""
    studies = [name for name in STUDIES if name in set(rows["study"])]
    for (study, role), part in rows[rows["role"].isin(roles)].groupby(["study", "role"]):
        offset, thickness = roles[str(role)]
        left = 0.0
        for form, count in counts(part).items():
            width = 100 * count / len(part)
            look = {"color": _COLORS[form], "alpha": 1.0 if role == "increment" else 0.45}
            axis.barh(studies.index(str(study)) + offset, width, thickness, left=left, **look)
            left += width
    axis.set_yticks(range(len(studies)), [STUDIES[name] for name in studies])
    axis.set_ylim(len(studies) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xticks([0, 50, 100], ["0", "50%", "100%"])
    axis.grid(visible=False, axis="y")


def form_key() -> list[Patch]:
    """Entries of a legend."""
    return [Patch(color=color, label=form) for form, color in _COLORS.items()]

"""What the figures of fine-tuning runs have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.canvas import Picture
from loca_theory.plotting.lines import Look

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LOOKS = {
    "lora": Look("#d55e00"),
    "dora": Look("#e69f00", (0, (4, 1))),
    "fourierft": Look("#000000", (0, (1, 2))),
    "loca": Look("#009e73"),
    "loca-charged": Look("#cc79a7", (0, (4, 1))),
    "loca-v1": Look("#7f7f7f", (0, (4, 1, 1, 1))),
    "loca-reselect": Look("#0072b2"),
    "waveft": Look("#56b4e9", (0, (4, 1))),
    "shira": Look("#8c564b", (0, (1, 1))),
    "c3a": Look("#f0e442"),
    "full": Look("#444444", (0, (6, 2))),
    "linear-probing": Look("#999999", (0, (1, 1))),
}
PLAIN = Look("#bbbbbb")
PERCENT, ACCURACY = 100.0, "test accuracy, %"
NOTHING = "every run diverged, so there is nothing to draw"

Lines = Sequence[Mapping[str, Any]]


def as_lines(table: pd.DataFrame) -> list[Any]:
    """The rows of a stored table, with None for missing values."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with panels for so many tasks, at most three in a row."""
    columns = min(count, 3)
    rows = -(-count // columns)
    figure = Picture(figsize=(2.9 * columns + 1.9, height * rows))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[count:]:
        axis.set_visible(False)
    return figure, axes[:count]


def legend(figure: Figure, axes: Iterable[Axes], caption: str) -> None:
    """Add the legend of all panels and a caption below them."""
    figure.supxlabel(caption, fontsize=7, color="#444444")
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(found.values(), found.keys(), loc="outside right upper", handlelength=3.2)


def with_mean(lines: Lines) -> Lines:
    """The lines with a mean, that is with at least one run that did not diverge.

    Raises:
        InvalidArgumentError: every run diverged.
    """
    found = [line for line in lines if line["mean"] is not None and np.isfinite(line["mean"])]
    if not found:
        raise InvalidArgumentError(NOTHING)
    return found


def has_no_budget(line: Mapping[str, Any]) -> bool:
    """Whether a rank does not determine the number of trained parameters of its method."""
    return line["r"] is None or line["r"] != line["r"]

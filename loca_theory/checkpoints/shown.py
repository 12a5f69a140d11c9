"""What the figures of an analysis show of a few matrices, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from loca_theory.increments import squared_singular_values

if TYPE_CHECKING:
    import torch

    from loca_theory.checkpoints.report import Report, Row
    from loca_theory.checkpoints.sources import Checkpoint

_KINDS = ("query", "value")
_CELLS = 8  # of the fine grid, for one of the figure's
_SINGLE = 4  # bytes


def representative(rows: Sequence[Row]) -> list[str]:
    """Query and value of the middle layer, as the paper shows them; else the first two matrices.

    Args:
        rows: Rows of a report.

    Source: Fig. 1 of the paper.
    """
    good = [row for row in rows if row["sigma"] is not None]
    chosen: list[str] = []
    for kind in _KINDS:
        mine = sorted((row for row in good if row["kind"] == kind), key=_layer)
        if mine:
            chosen.append(mine[len(mine) // 2]["name"])
    others = [row["name"] for row in good if row["name"] not in chosen]
    return (chosen + others)[: len(_KINDS)]


def shown_rows(report: Report, tuned: Checkpoint | None) -> list[Row]:
    """Histograms and spectra of the representative matrices.

    Args:
        report: An analysis.
        tuned: The fine-tuned checkpoint, for the spectrum of the weights themselves; None for an
            adapter, which does not hold them.

    Returns:
        For each matrix a row a ``quantity``: ``entries`` (shares of the standardised entries in
        128 equal cells from −8 to 8), ``increment`` (squared singular values of ΔW, smallest first)
        and ``weights`` (those of W′ unless it is 0), in ``values``; of entries beyond 2^±32 those
        of the matrix divided by a power of two; beside them ``name``, ``p``, ``q`` and of ΔW
        ``sigma``, ``tv``, ``excess_kurtosis``.
    """
    rows = {row["name"]: row for row in report.rows}
    found: list[Row] = []
    for name in representative(report.rows):
        row = rows[name]
        p, q = row["shape"]
        labels = {"name": name, "p": p, "q": q}
        statistics = {key: row[key] for key in ("sigma", "tv", "excess_kurtosis")}
        found += [
            {**labels, "quantity": quantity, "values": values, **statistics}
            for quantity, values in _quantities(report, tuned, name)
        ]
    return found


def _quantities(
    report: Report, tuned: Checkpoint | None, name: str
) -> Iterator[tuple[str, list[Any]]]:
    from loca_theory.transforms.inputs import balanced

    analysis = report.analyses[name]
    counts = analysis.counts.counts[1:-1].reshape(-1, _CELLS).sum(axis=1)
    yield "entries", (counts / analysis.counts.size).tolist()
    yield "increment", analysis.eigenvalues.tolist()
    if tuned is not None:
        values = squared_singular_values(balanced(_widened(tuned.load(name)), name)[0])
        if values.any():
            yield "weights", values.tolist()


def _widened(weights: torch.Tensor) -> torch.Tensor:
    return weights if weights.itemsize > _SINGLE else weights.float()


def _layer(row: Row) -> float:
    return -1.0 if row["layer"] is None else row["layer"]

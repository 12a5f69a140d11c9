"""Held-out entries: some cells are hidden from a fit, which is then judged by them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from loca_theory.rounding.cells import RoundingCells
from loca_theory.rounding.formats import Format
from loca_theory.sweeps import generator

_FRACTION = 0.05


@dataclass(frozen=True)
class HeldOut:
    """Entries that changed and were hidden from a fit, with their cells."""

    rows: torch.Tensor
    columns: torch.Tensor
    cells: RoundingCells

    def fraction_met(self, increments: torch.Tensor) -> tuple[float, float]:
        """Fraction of the entries whose increments are in their cells, and its standard error."""
        count = max(1, len(self.rows))
        fraction = int(self.cells.contain(increments).count_nonzero()) / count
        return fraction, math.sqrt(fraction * (1 - fraction) / count)


def hold_out(
    base: torch.Tensor,
    tuned: torch.Tensor,
    form: Format,
    change: torch.Tensor,
    cells: RoundingCells,
) -> HeldOut:
    """Hide 5% of the entries in place: their cells become infinite, and their change 0."""
    draws = generator(0, "held-out cells").random(tuned.shape, dtype=np.float32)
    held = torch.from_numpy(draws < _FRACTION).to(tuned.device)
    moved = form.round(base[held].double()) != tuned[held].double()
    rows, columns = (indices[moved] for indices in held.nonzero(as_tuple=True))
    shown = RoundingCells(cells.low[held][moved], cells.high[held][moved])
    for matrix, value in ((change, 0.0), (cells.low, -torch.inf), (cells.high, torch.inf)):
        matrix.masked_fill_(held, value)
    return HeldOut(rows, columns, shown)

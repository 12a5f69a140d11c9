"""Plain entries: the largest entries of ΔW, as SHiRA of PEFT stores them."""

from __future__ import annotations

import math

import torch

from loca_theory.checkpoints.form.coordinates import LargestCoordinates
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.model.model import EXPERTS
from loca_theory.checkpoints.source.checkpoint import Reason
from loca_theory.expressivity import Budget


class PlainEntries(LargestCoordinates):
    """SHiRA; its size r stands for r (p + q) entries, as many as LoRA has numbers."""

    key = "entries"
    title = "SHiRA"
    method = "entries"
    words = "the largest plain entries"
    verb = "retain"
    config_class = "peft", "ShiraConfig"
    remark = '# The entries are random; extract(..., "entries") stores the largest of a fine-tune.'
    # Two integers of 32 bits.
    location_bytes = 8
    one_size = "plain entries are stored as SHiRA, with r (p + q) in each matrix and one r for all"

    def obstacle(self, layer: Layer, rank: int = 0) -> Reason | None:
        """Anything but ``nn.Linear`` is one, and so is a matrix of too few entries."""
        if layer.obstacle or layer.experts > 1:
            return layer.obstacle or EXPERTS
        if layer.kernel or layer.is_transposed:
            kind = "convolution" if layer.kernel else "Conv1D"
            return Reason(kind, "SHiRA adapts nn.Linear only")
        if rank > self.largest(layer):
            stored = f"{rank * self.unit(layer)} of {math.prod(layer.shape)} entries"
            return Reason(f"too small for r = {rank}", f"SHiRA would store {stored}")
        return None

    def largest(self, layer: Layer) -> int:
        """The r that stores no more entries than there are."""
        return math.prod(layer.shape) // self.unit(layer)

    def size_of_budget(self, budget: Budget) -> int:
        """The r whose entries a budget pays for."""
        return max(budget.chosen_coefficients // (budget.p + budget.q), 1)

    def coordinates(self, matrix: torch.Tensor) -> torch.Tensor:
        """The entries."""
        return matrix

    def tensors(
        self,
        values: torch.Tensor,
        rows: torch.Tensor,
        columns: torch.Tensor,
        layer: Layer,  # noqa: ARG002
    ) -> dict[str, torch.Tensor]:
        """Values, and their rows and columns."""
        return {"shira_weight": values, "shira_indices": torch.stack([rows, columns]).int()}

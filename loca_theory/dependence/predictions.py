"""Predictions of a structure's losses and crossings from the closed forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from loca_theory.dependence.closed_forms import (
    cosine_variances,
    low_rank_loss_with_shared_mean,
    low_rank_loss_with_spike,
    selection_loss_of_separable,
    selection_loss_with_shared_mean,
    selection_loss_with_spike,
)
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.structure import Structure
from loca_theory.expressivity import METHODS, Budget, exact_error
from loca_theory.expressivity.methods.engine import Engine

_LOW_RANK = METHODS["LoRA"]


def predictions(budgets: Sequence[Budget]) -> list[Prediction]:
    """Closed forms at budgets of one shape, from LoRA's losses for independent entries."""
    fewer = [
        replace(full, p=full.p - 1, q=full.q - 1, r=full.r - 1) for full in budgets if full.r > 1
    ]
    without = dict(zip([budget.r + 1 for budget in fewer], _losses(fewer), strict=True))
    return [
        Prediction(budget, loss, without.get(budget.r, 1.0))
        for budget, loss in zip(budgets, _losses(budgets), strict=True)
    ]


def _losses(budgets: Sequence[Budget]) -> list[float]:
    """Losses of LoRA for independent entries: exact, or their limit at very large ranks."""
    if budgets and all(Engine.EXACT in _LOW_RANK.engines(budget) for budget in budgets):
        return _LOW_RANK.expected_errors(budgets).tolist()
    return [_LOW_RANK.limit(budget) for budget in budgets]


@dataclass(frozen=True)
class Prediction:
    """Closed forms at one budget.

    Attributes:
        budget: Shape, rank and accounting.
        loss: L_R(r) of independent p×q entries, relative to their own energy.
        loss_without: L_R(r−1) of independent (p−1)×(q−1) entries, relative to their own energy; 1
            for r = 1.
    """

    budget: Budget
    loss: float
    loss_without: float

    def error(self, structure: Structure, method: str, value: float) -> float | None:
        """Expected error of a method relative to E‖W‖²; None without a closed form.

        Only LoRA, LoCA and entries have closed forms. The error of LoCA is exact under
        ``shared-mean`` and ``equicorrelated``. Under the separable structures, those of LoCA and
        entries are exact if the coordinates are independent, and otherwise approximations. The
        other errors are approximations of leading order for large p and q: that of LoRA follows
        from the spiked model, and that of LoCA under ``spiked`` from the mixture law of the
        coefficients of a random spike.
        """
        match structure.name, method:
            case (("shared-mean" | "equicorrelated"), ("LoRA" | "LoCA")):
                return self._with_shared_mean(structure.name, method, value)
            case "spiked", ("LoRA" | "LoCA") if structure.option == 1:
                return self._with_spike(method, value)
            case _, ("LoCA" | "entries") if factors := structure.factors(
                self.budget.p, self.budget.q, value
            ):
                of_factor = cosine_variances if method == "LoCA" else np.diagonal
                a, b = map(of_factor, factors)
                return selection_loss_of_separable(a, b, self.budget.chosen_coefficients)
        return None

    def _with_shared_mean(self, structure: str, method: str, rho: float) -> float | None:
        p, q = self.budget.p, self.budget.q
        n = p * q
        noise = 1.0 if structure == "shared-mean" else 1 - rho
        atom = noise + n * rho
        energy = (n - 1) * noise + atom
        if rho < 0 or noise <= 0:
            return None
        if method == "LoCA":
            return selection_loss_with_shared_mean(self.budget, noise, atom) / energy
        spread = n * rho / noise
        loss = low_rank_loss_with_shared_mean(p, q, spread, self.loss, self.loss_without)
        return loss * n * noise / energy

    def _with_spike(self, method: str, fraction: float) -> float | None:
        p, q = self.budget.p, self.budget.q
        t = fraction / (1 - fraction)
        if method == "LoCA":
            return selection_loss_with_spike(t, self.budget.chosen_coefficients / (p * q)) / (1 + t)
        if t * t * p * q <= 1:
            return None
        return low_rank_loss_with_spike(p, q, t, self.loss_without) / (1 + t)

    def crossing(
        self, structure: Structure, protocol: Protocol, low: float, high: float
    ) -> float | None:
        """Value in [low, high] at which LoRA's error passes below LoCA's; None if none is known."""
        if structure.name not in ("shared-mean", "equicorrelated", "spiked"):
            return None
        if structure.name == "spiked":
            # Below this the spike is hidden in the bulk, and LoRA has no closed form.
            low = max(low, 1.001 / (1 + math.sqrt(self.budget.p * self.budget.q)))
        low, high = max(low, 0.0), min(high, 1 - 1e-9 if structure.name != "shared-mean" else high)

        def gap(value: float) -> float:
            rank, selected = (self.error(structure, method, value) for method in ("LoRA", "LoCA"))
            if protocol is Protocol.IID_REFERENCE:
                selected = exact_error("LoCA", self.budget)
            return math.nan if rank is None or selected is None else rank - selected

        if low >= high or not gap(low) > 0 >= gap(high):
            return None
        return float(optimize.brentq(gap, low, high, xtol=1e-12))

"""Predictions of a structure's losses and crossings from the closed forms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import optimize

from loca_theory.dependence.closed_forms import (
    low_rank_loss_with_shared_mean,
    low_rank_loss_with_spike,
    selection_loss_with_shared_mean,
    selection_loss_with_spike,
)
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.separable import cosine_variances, selection_loss_of_separable
from loca_theory.dependence.structures import find_structure
from loca_theory.expressivity import Budget, exact_error


@dataclass(frozen=True)
class Prediction:
    """Closed forms at one budget.

    Attributes:
        budget: Shape, rank and accounting.
        loss: L_R(r) of independent p×q entries, relative to their own energy.
        loss_without: L_R(r−1) of independent (p−1)×(q−1) entries, relative to their own energy; 1
            for r = 1.
        options: Arguments of structures by name, see :func:`~loca_theory.dependence.ar1`,
            :func:`~loca_theory.dependence.blocks` and :func:`~loca_theory.dependence.spiked`;
            that of a structure without an entry is its default.
    """

    budget: Budget
    loss: float
    loss_without: float
    options: Mapping[str, float | None] = field(default_factory=dict)

    def error(self, structure: str, method: str, value: float) -> float | None:
        """Expected error of a method relative to E‖W‖²; None if there is no closed form.

        Only the methods R, D and S have closed forms. The error of D is exact under
        ``shared-mean`` and ``equicorrelated``. Under the separable structures, those of D and S are
        exact if the coordinates are independent, and otherwise approximations; see
        :mod:`~loca_theory.dependence.separable`. The other errors are leading orders in the size:
        that of R follows from the spiked model, and that of D under ``spiked`` follows from the
        mixture law of the coefficients of a random spike.
        """
        match structure, method:
            case (("shared-mean" | "equicorrelated"), ("R" | "D")):
                return self._with_shared_mean(structure, method, value)
            case "spiked", ("R" | "D") if self.options.get("spiked") in (None, 1):
                return self._with_spike(method, value)
            case _, ("D" | "S"):
                return self._of_separable(structure, method, value)
        return None

    def _of_separable(self, structure: str, method: str, value: float) -> float | None:
        factors = find_structure(structure, self.options.get(structure)).factors
        if factors is None:
            return None
        of_factor = cosine_variances if method == "D" else np.diagonal
        a, b = (of_factor(one) for one in factors(self.budget.p, self.budget.q, value))
        return selection_loss_of_separable(a, b, self.budget.chosen_coefficients)

    def _with_shared_mean(self, structure: str, method: str, rho: float) -> float | None:
        p, q = self.budget.p, self.budget.q
        n = p * q
        noise = 1.0 if structure == "shared-mean" else 1 - rho
        atom = noise + n * rho
        energy = (n - 1) * noise + atom
        if rho < 0 or noise <= 0:
            return None
        if method == "D":
            return selection_loss_with_shared_mean(self.budget, noise, atom) / energy
        spread = n * rho / noise
        loss = low_rank_loss_with_shared_mean(p, q, spread, self.loss, self.loss_without)
        return loss * n * noise / energy

    def _with_spike(self, method: str, fraction: float) -> float | None:
        p, q = self.budget.p, self.budget.q
        t = fraction / (1 - fraction)
        if method == "D":
            return selection_loss_with_spike(t, self.budget.chosen_coefficients / (p * q)) / (1 + t)
        if t * t * p * q <= 1:
            return None
        return low_rank_loss_with_spike(p, q, t, self.loss_without) / (1 + t)

    def crossing(self, structure: str, protocol: Protocol, low: float, high: float) -> float | None:
        """Value in [low, high] at which R's error passes below D's; None if none is known."""
        if structure not in ("shared-mean", "equicorrelated", "spiked"):
            return None
        if structure == "spiked":
            # Below this the spike is hidden in the bulk, and R has no closed form.
            low = max(low, 1.001 / (1 + math.sqrt(self.budget.p * self.budget.q)))
        low, high = max(low, 0.0), min(high, 1 - 1e-9 if structure != "shared-mean" else high)

        def gap(value: float) -> float:
            rank, selected = (self.error(structure, method, value) for method in "RD")
            if protocol is Protocol.IID_REFERENCE:
                selected = exact_error("D", self.budget)
            return math.nan if rank is None or selected is None else rank - selected

        if low >= high or not gap(low) > 0 >= gap(high):
            return None
        return float(optimize.brentq(gap, low, high, xtol=1e-12))

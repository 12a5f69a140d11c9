"""State of a batch of problems during learning."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from loca_theory._arguments import real_number
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import Problems
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Rates:
    """Learning rates of stochastic gradient descent.

    Attributes:
        lr: Learning rate of the coefficients.
        location_lr: Learning rate of the locations, in the unit of the interpretation.
    """

    lr: float = 0.02
    location_lr: float = 0.05

    def __post_init__(self) -> None:
        for name, rate in vars(self).items():
            if not 0 < real_number(name, rate) < math.inf:
                raise InvalidArgumentError(f"{name} must be positive and finite, not {rate:g}")


# A problem whose loss has grown by this factor counts as diverged.
_DIVERGED = 1e6


class State:
    """Coefficients and locations of P problems, and the quantities that gradient descent needs.

    Attributes:
        problems: The problems to recover.
        interpretation: Settings for what the paper's description leaves open.
        rates: Learning rates.
        coefficients: Coefficients a, (P, B), initially zero.
        indices: Locations as flat indices of the spectrum, (P, B).
        curvature: Curvature h of every location, (P, K²).
        is_diverged: Whether the loss of a problem has diverged; it is then not updated, (P,).
    """

    def __init__(self, problems: Problems, interpretation: Interpretation, rates: Rates) -> None:
        self.problems, self.interpretation, self.rates = problems, interpretation, rates
        self.coefficients = torch.zeros_like(problems.coefficients)
        self.curvature = problems.curvature()
        self.is_diverged = torch.zeros(problems.rows.shape[0], dtype=torch.bool)
        self._truth = problems.product(problems.indices, problems.coefficients)
        at_truth = self._truth.gather(1, problems.indices)
        self._start_loss = (problems.coefficients * at_truth).sum(1) / 2
        self.set_indices(problems.start)

    def set_indices(self, indices: torch.Tensor) -> None:
        """Move the components to these locations."""
        self.indices = indices
        self._hessian = self.problems.hessian(indices)
        self._target = self._truth.gather(1, indices)
        self._counts: torch.Tensor | None = None
        if self.interpretation.collisions == "overwrite":
            same = (indices[:, :, None] == indices[:, None, :]).triu(1)
            self._counts = ~same.any(2)

    def move(self, indices: torch.Tensor) -> None:
        """Move the components, and reset the coefficients of those whose location changes."""
        self.coefficients = torch.where(indices == self.indices, self.coefficients, 0)
        self.set_indices(indices)

    @property
    def acting(self) -> torch.Tensor:
        """The coefficients as they enter ΔW, (P, B)."""
        return self.coefficients if self._counts is None else self.coefficients * self._counts

    def gradient(self, coefficients: torch.Tensor | None = None) -> torch.Tensor:
        """Gradient Z of the whole spectrum, (P, K²), optionally with other coefficients."""
        a = self.acting if coefficients is None else coefficients
        return self.problems.product(self.indices, a) - self._truth

    def own_gradient(self) -> torch.Tensor:
        """Gradient Z at the locations, (P, B)."""
        return (self._hessian @ self.acting[..., None])[..., 0] - self._target

    def descend(self) -> None:
        """Take one step of gradient descent on the coefficients."""
        stepped = self.coefficients - self.rates.lr * self.own_gradient()
        self.coefficients = torch.where(self.is_diverged[:, None], 0, stepped)

    def solve(self, count: int) -> None:
        """Fit the last ``count`` coefficients by least squares, and set the others to zero."""
        a = torch.linalg.lstsq(
            self._hessian[:, -count:, -count:], self._target[:, -count:, None], driver="gelsd"
        ).solution[..., 0]
        self.coefficients = torch.nn.functional.pad(a, (self.indices.shape[1] - count, 0))

    def relative_loss(self) -> torch.Tensor:
        """Loss in units of the loss at ΔW = 0, (P,); infinite for diverged problems."""
        a, truth = self.acting, self.problems.coefficients
        # Γ(F − F*)Σ from the difference F − F*, because ΓFΣ − ΓF*Σ would cancel at small losses.
        indices = torch.cat([self.indices, self.problems.indices], dim=1)
        difference = torch.cat([a, -truth], dim=1)
        product = (self.problems.hessian(indices) @ difference[..., None])[..., 0]
        loss = (difference * product).sum(1).clamp(min=0) / 2
        relative = loss / self._start_loss
        return torch.where(self.is_diverged | ~relative.isfinite(), torch.inf, relative)

    def stop_diverged(self) -> None:
        """Mark problems whose loss has diverged, and set their coefficients to zero."""
        self.is_diverged = ~(self.relative_loss() < _DIVERGED)
        self.coefficients = torch.where(self.is_diverged[:, None], 0, self.coefficients)

"""The schedule of the phases in which coefficients and locations are learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from loca_theory.adapters.checks import check_whole

Phase = Literal["coefficients", "locations", "both"]

# The progress if B_s is None. `reselect` then drops a fiftieth of the components at a time.
_ENDLESS = 0.85


@dataclass(frozen=True)
class AlternatingSchedule:
    r"""Learn coefficients for B_a steps and locations for B_l steps, in turn, for B_s steps in all.

    After that, the locations are frozen and only the coefficients are learned. Steps are steps of
    the optimiser. After t steps, the phase is that of the coefficients if t ≥ B_s or
    t mod (B_a + B_l) < B_a. The variants of the paper's ablation are settings: V1 is
    ``alternating_steps=0``, V2 ``alternating_steps=None``, V3 ``joint=True``; V4 and V5 are
    ``location_search="forward"`` and ``"backward"`` of the layer.

    Attributes:
        coefficient_steps: B_a, at least 1.
        location_steps: B_l, at least 1.
        alternating_steps: B_s; 0 for fixed random locations, None for no end. The paper uses 120
            to 3000, and recommends 10 to 20% of all steps.
        joint: Learn coefficients and locations in each of the B_s steps.
        recorded_steps: Number of steps whose gradients are summed before pruning and regrowing (all
            steps of a shorter period), and at the start for ``init_locations="gradient"``.

    Raises:
        InvalidArgumentError: a number of steps is out of range.

    Source: section "Alternating Optimization Strategy" and Algorithm 1 of the paper, with t from 0:
    from 1, as printed, the first phase would be one step shorter than all other phases.
    """

    coefficient_steps: int = 10
    location_steps: int = 20
    alternating_steps: int | None = 600
    joint: bool = False
    recorded_steps: int = 4

    def __post_init__(self) -> None:
        for name in ("coefficient_steps", "location_steps", "recorded_steps"):
            check_whole(name, getattr(self, name), 1)
        if self.alternating_steps is not None:
            check_whole("alternating_steps", self.alternating_steps, 0)

    @property
    def period(self) -> int:
        """B_a + B_l, the number of steps from one pruning and regrowing to the next."""
        return self.coefficient_steps + self.location_steps

    def records(self, step: int, ahead: int = 0) -> bool:
        """Whether a search records the gradient of the next step.

        Args:
            step: Number of steps done.
            ahead: Number of steps by which a layer is ahead of the schedule. Recording needs
                twice the memory of ΔW; if they differ, not all layers need it at once.
        """
        left = self.period - (step + ahead) % self.period
        return left <= self.recorded_steps and not self.is_over(step)

    def prunes_and_regrows(self, step: int, ahead: int = 0) -> bool:
        """Whether the next step ends a period: components are pruned and regrown after it."""
        return (step + ahead + 1) % self.period == 0 and not self.is_over(step)

    def is_over(self, step: int) -> bool:
        """Whether B_s steps are done."""
        return self.alternating_steps is not None and step >= self.alternating_steps

    def progress(self, step: int) -> float:
        """Fraction of B_s that is done, before its end; a constant if B_s is None."""
        return _ENDLESS if self.alternating_steps is None else step / self.alternating_steps

    def phase(self, step: int) -> Phase | None:
        """Phase of the step after the first ``step`` steps; None once the locations are frozen."""
        if self.is_over(step):
            return None
        if self.joint:
            return "both"
        within = step % self.period
        return "coefficients" if within < self.coefficient_steps else "locations"

"""Named settings for what the paper's description of the toy experiment leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Interpretation:
    r"""One interpretation of the paper's description of the toy experiment.

    Attributes:
        spread: Whether 20 and 0.2 in N(0, 20) and N(0, 0.2) are a ``variance`` or a
            ``standard-deviation``.
        loss: Divisor of the squared errors of 5000 samples in K outputs: ``mean`` divides by both
            numbers, ``mean-of-samples`` by the number of samples, ``sum`` by 1.
        units: Unit of the locations that their learning rate applies to: ``interval``, locations
            scaled to [0, 1], as in the published code; ``indices``, indices of the spectrum.
        border: Value of Z, the DCT of the gradient, outside the spectrum: ``clamp``, the nearest
            entry of Z; ``zero``; ``one-sided``, a linear extrapolation, which makes the central
            difference one-sided.
        collisions: How components at the same location combine: ``add``; or ``overwrite``, which
            uses the last one only, while all of them receive the gradient of their location.
        phase_steps: Steps of one phase: 10, or 5 if the paper's period of 10 steps has both phases.
        moving: The fraction of all steps after which the locations are frozen.

    Source: appendix "Toy Experiment of the Convergence" of the paper, which leaves these open.
    """

    spread: Literal["variance", "standard-deviation"] = "variance"
    loss: Literal["mean", "mean-of-samples", "sum"] = "mean"
    units: Literal["interval", "indices"] = "interval"
    border: Literal["clamp", "zero", "one-sided"] = "clamp"
    collisions: Literal["add", "overwrite"] = "add"
    phase_steps: int = 10
    moving: float = 0.5

    @property
    def data_standard_deviation(self) -> float:
        """Standard deviation of the data."""
        return 20.0 if self.spread == "standard-deviation" else 20.0**0.5

    @property
    def weight_standard_deviation(self) -> float:
        """Standard deviation of the weights and of the coefficients."""
        return 0.2 if self.spread == "standard-deviation" else 0.2**0.5

    def moving_steps(self, steps: int) -> int:
        """Number of steps after which the locations are frozen."""
        return round(self.moving * steps)


DEFAULT_INTERPRETATION = "default"
# Differences of each interpretation from the default.
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    DEFAULT_INTERPRETATION: {},
    "standard-deviation": {"spread": "standard-deviation"},
    "mean-of-samples": {"loss": "mean-of-samples"},
    "sum": {"loss": "sum"},
    "indices": {"units": "indices"},
    "zero-border": {"border": "zero"},
    "one-sided-border": {"border": "one-sided"},
    "overwrite": {"collisions": "overwrite"},
    "half-period": {"phase_steps": 5},
    "never-frozen": {"moving": 1.0},
}
INTERPRETATIONS: tuple[str, ...] = tuple(_CHANGES)


def find_interpretation(name: str) -> Interpretation:
    """Find an interpretation: one of :data:`INTERPRETATIONS`, or several joined by ``+``."""
    changes: dict[str, Any] = {}
    for part in str(name).split("+"):
        if part not in _CHANGES:
            raise InvalidArgumentError(
                f"unknown interpretation {part!r}; choose from {', '.join(INTERPRETATIONS)}, or "
                "join several by +"
            )
        for key, value in _CHANGES[part].items():
            if key in changes:
                raise InvalidArgumentError(
                    f"interpretation {name!r} sets {key} twice; leave out one of its parts"
                )
            changes[key] = value
    return replace(Interpretation(), **changes)

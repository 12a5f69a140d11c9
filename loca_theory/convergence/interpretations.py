"""What the printed experiment leaves open, as named settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Interpretation:
    r"""One way to read the description of the toy experiment.

    Attributes:
        spread: What 20 and 0.2 in N(0, 20) and N(0, 0.2) are: ``variance`` or ``deviation``.
        loss: What the squared errors of 5000 samples in K outputs are divided by: ``mean``, by
            both; ``mean-of-samples``, by the samples; ``sum``, by nothing.
        units: What the learning rate of the locations acts on: ``interval``, locations scaled to
            [0, 1], as the published code has them; ``indices``, locations counted in locations.
        border: What stands for Z beyond the spectrum: ``clamp``, the nearest entry of Z; ``zero``;
            ``one-sided``, a linear extrapolation, which makes the central difference one-sided.
        collisions: Components at one location ``add`` up, or the last to be written ``overwrites``
            the others, each of which has the gradient of its location all the same.
        phase_steps: Steps of one phase: 10, or 5 if the period of 10 means both together.
        moving: The fraction of all steps after which the locations are frozen.

    Source: appendix "Toy Experiment of the Convergence" of the paper, which does not say.
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
        """After how many of all steps the locations are frozen."""
        return round(self.moving * steps)

    def describe(self) -> dict[str, Any]:
        """The settings as plain data."""
        return asdict(self)


DEFAULT_INTERPRETATION = "default"
# What each differs in from the default.
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
    """The interpretation of a name: one of :data:`INTERPRETATIONS`, or several joined by ``+``.

    Raises:
        InvalidArgumentError: a part is unknown, or two parts set the same choice.
    """
    changes: dict[str, Any] = {}
    for part in str(name).split("+"):
        if part not in _CHANGES:
            msg = f"unknown interpretation {part!r}; choose from {', '.join(INTERPRETATIONS)}, or "
            msg += "join some by +"
            raise InvalidArgumentError(msg)
        for key, value in _CHANGES[part].items():
            if key in changes:
                msg = f"interpretation {name!r} sets {key} twice"
                raise InvalidArgumentError(msg)
            changes[key] = value
    return replace(Interpretation(), **changes)

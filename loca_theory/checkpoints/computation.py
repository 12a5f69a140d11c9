"""The computation of one point of an analysis: of one matrix, wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.pairs.pair import CheckpointPair, not_finite
from loca_theory.checkpoints.settings import Settings
from loca_theory.checkpoints.statistics.comparison import compare
from loca_theory.checkpoints.statistics.matrix import analyse_matrix
from loca_theory.checkpoints.weights.checkpoint import DamagedError, LeftOutError, skipped
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps.store import Point

if TYPE_CHECKING:
    import torch

INCREMENT, WEIGHTS, COMPARISON = "increments", "weights", "comparisons"
"""Names of the three kinds of points."""
PACKAGES = (
    "loca_theory.adapters",
    "loca_theory.checkpoints",
    "loca_theory.expressivity",
    "loca_theory.increments",
    "loca_theory.locations",
    "loca_theory.sweeps.random",
    "loca_theory.transforms",
)
"""The packages whose code computes them."""


@dataclass(frozen=True)
class MatrixComputation:
    """The computation of one point, on a worker or in this process.

    Attributes:
        pairs: The pairs of checkpoints by label of the fine-tune.
        settings: Settings for every increment.
    """

    pairs: Mapping[str, CheckpointPair]
    settings: Settings

    def __call__(self, point: Point) -> dict[str, Any]:
        """Compute a point.

        Raises:
            ResourceError: there is not enough memory.
        """
        name, tuned = point.parameters["name"], point.parameters["tuned"]
        if point.experiment == COMPARISON:
            first, second = tuned
            one, other = (self.pairs[label].increment(name) for label in tuned)
            return asdict(compare(name, (first, second), one, other, self.settings.subspaces))
        pair = self.pairs[tuned]
        if point.experiment == WEIGHTS:
            return {"values": _weights_spectrum(pair, name)}
        try:
            increment = pair.increment(name)
            weights = pair.weights(name)
            _check(increment)
        except (LeftOutError, DamagedError) as error:
            return {"skipped": skipped(error)}
        return asdict(
            analyse_matrix(
                name,
                increment,
                self.settings,
                weights=weights,
                dtype=pair.matrices[name].dtype,
                note=pair.matrices[name].note,
                labels={"tuned": tuned, **point.parameters["labels"]},
                consume=True,
            )
        )


def _weights_spectrum(pair: CheckpointPair, name: str) -> list[float]:
    """Squared singular values of W′."""
    from loca_theory.transforms.inputs import balanced

    increment, before = pair.increment(name), pair.weights(name)
    after = increment if before is None else increment.add_(before)
    return squared_singular_values(balanced(after, name)[0]).tolist()


def _check(increment: torch.Tensor) -> None:
    """Raise the reason to leave an increment out if it cannot be analysed."""
    low, high = (float(value) for value in increment.aminmax())
    if low == high:
        same = "the same" if low else "0"
        reason = f"every entry of the increment is {same}"
        raise LeftOutError(reason if low else f"unchanged: {reason}")
    if reason := not_finite(increment):
        raise LeftOutError(reason, damaged=True)

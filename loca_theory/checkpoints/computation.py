"""The points of an analysis, one a matrix, and their computation wherever they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import torch

from loca_theory.checkpoints.pairs.model_pair import ModelLayers
from loca_theory.checkpoints.pairs.pair import CheckpointPair, not_finite
from loca_theory.checkpoints.placement import placed, takes_seconds
from loca_theory.checkpoints.rows import Comparison, Skipped
from loca_theory.checkpoints.settings import Settings
from loca_theory.checkpoints.sizing.peft_config import end_others
from loca_theory.checkpoints.statistics.comparison import compare
from loca_theory.checkpoints.statistics.matrix import MatrixAnalysis, analyse_matrix
from loca_theory.checkpoints.weights.checkpoint import DamagedError, LeftOutError, skipped
from loca_theory.expressivity.methods.registry import METHODS, definition
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps import Runner
from loca_theory.sweeps.store import Point
from loca_theory.transforms.inputs import balanced

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


class AnalysisWork:
    """The points of an analysis, and their results as rows.

    Args:
        pairs: The pairs by label of the fine-tune.
        models: Their matrices as layers of a model.
        settings: Settings for every increment.
        runner: Runs the points.

    Attributes:
        skipped: Tensors that were left out; complete after :meth:`analyses`.
    """

    def __init__(
        self,
        pairs: Mapping[str, CheckpointPair],
        models: Mapping[str, ModelLayers],
        settings: Settings,
        runner: Runner,
    ) -> None:
        self._pairs, self._models, self._settings = pairs, models, settings
        own = [definition(method) for method in settings.methods if method.name not in METHODS]
        self._own: list[Any] = [] if None in own else own
        # A method that has no definition as text cannot be recognised in a store.
        self._store = None if None in own else runner.store
        runner = replace(placed(runner, pairs.values(), settings.device), store=self._store)
        # Nor can it be sent to a worker.
        self._runner = replace(runner, jobs=1) if None in own else runner
        self._is_long = takes_seconds(pairs.values())
        self._compute = MatrixComputation(pairs, settings)
        self.skipped = [
            replace(one, tuned=tuned) for tuned, pair in pairs.items() for one in pair.skipped
        ]

    def analyses(self) -> list[MatrixAnalysis]:
        """Analyse every matrix of every fine-tune."""
        found = []
        points = [
            point
            for tuned, pair in self._pairs.items()
            for name in pair.names
            if (point := self._point(INCREMENT, name, tuned))
        ]
        for point, result in self._run(points):
            tuned, name = point.parameters["tuned"], point.parameters["name"]
            if "skipped" in result:
                self._skip(Skipped(name, **result["skipped"]), tuned)
            else:
                found.append(MatrixAnalysis.from_json(result))
        return found

    def has_ambiguous_names(self, tuned: str) -> bool:
        """Whether PEFT may take a list of modules of this fine-tune to fit other modules as well.

        The names in an adapter do not show which other modules the model has.
        """
        model = self._models[tuned]
        own = {one.module for one in model.layers.values()}
        return self._pairs[tuned].base is None or end_others(own, model.modules)

    def weights(self, analyses: Iterable[MatrixAnalysis]) -> dict[str, list[float]]:
        """Squared singular values of W′ of the given matrices, by name; none without a base."""
        points = [
            point
            for one in analyses
            if self._pairs[one.matrix.tuned].base is not None
            and (point := self._point(WEIGHTS, one.matrix.name, one.matrix.tuned))
        ]
        return {
            point.parameters["name"]: result["values"]
            for point, result in self._run(points, is_shown=False)
        }

    def comparisons(self, analyses: Iterable[MatrixAnalysis]) -> tuple[Comparison, ...]:
        """Compare every two fine-tunes on each matrix that both change."""
        by_name: dict[str, list[str]] = {}
        shapes: dict[tuple[str, str], tuple[int, int]] = {}
        for one in analyses:
            by_name.setdefault(one.matrix.name, []).append(one.matrix.tuned)
            shapes[one.matrix.name, one.matrix.tuned] = one.matrix.shape
        points = [
            point
            for name, changed_by in by_name.items()
            for first, second in combinations(changed_by, 2)
            if shapes[name, first] == shapes[name, second]
            and (point := self._point(COMPARISON, name, first, second))
        ]
        found = self._run(points, is_shown=False)
        return tuple(Comparison(**result) for _, result in found)

    def _run(
        self, points: list[Point], *, is_shown: bool = True
    ) -> Iterator[tuple[Point, dict[str, Any]]]:
        runner = self._runner if is_shown else replace(self._runner, progress=None)
        found = runner.run(points, self._compute, is_long=self._is_long)
        return zip(points, found, strict=True)

    def _point(self, experiment: str, name: str, *tuned: str) -> Point | None:
        """The point of one matrix; None if the matrix cannot be read, which is then recorded."""
        digests: list[str] | None = None
        if self._store is not None:
            try:
                digests = [self._pairs[label].fingerprint(name) for label in tuned]
            except DamagedError as error:
                self._skip(Skipped(name, str(error), damaged=True), tuned[0])
                return None
        # The device is not part of the key: NumPy draws all random numbers, so results on
        # different devices differ only by rounding.
        asked = replace(self._settings, device="cpu").describe()
        if experiment != INCREMENT:
            asked = {"subspaces": asked["subspaces"]}
        else:
            asked["labels"] = self._models[tuned[0]].layers[name].labels
            if self._own:
                asked["own"] = self._own
        who = {"tuned": tuned[0]} if len(tuned) == 1 else {"tuned": list(tuned)}
        return Point(experiment, {"name": name, **who, "entries": digests, **asked}, PACKAGES)

    def _skip(self, one: Skipped, tuned: str) -> None:
        self.skipped.append(replace(one, tuned=tuned))

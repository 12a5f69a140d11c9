"""The cells of an analysis, one a matrix, and their computation wherever they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar, TypeVar

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
from loca_theory.expressivity.methods.registry import identities, is_recognisable
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps import Runner
from loca_theory.sweeps.store import Cell
from loca_theory.transforms.inputs import balanced

_Pairs = Mapping[str, CheckpointPair]
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


def _described(settings: Settings) -> dict[str, Any]:
    # The device is not part of the key: NumPy draws all random numbers, so results on different
    # devices differ only by rounding.
    return {**settings.describe(), "device": "", "methods": identities(settings.methods)}


@dataclass(frozen=True)
class WeightsCell(Cell):
    """The spectrum of the weights of one fine-tune.

    Attributes:
        name: Name of the matrix.
        tuned: Labels of the fine-tunes that it is computed from.
        entries: Digests of what their increments are computed from, if the result is stored.
    """

    experiment: ClassVar[str] = "weights"
    packages: ClassVar[tuple[str, ...]] = PACKAGES

    name: str
    tuned: tuple[str, ...]
    entries: tuple[str, ...] | None


@dataclass(frozen=True)
class ComparisonCell(WeightsCell):
    """The comparison of two fine-tunes; of so many of their singular vectors."""

    experiment: ClassVar[str] = "comparisons"

    subspaces: int | None


@dataclass(frozen=True)
class IncrementCell(WeightsCell):
    """The analysis of one increment, whose row has these labels."""

    experiment: ClassVar[str] = "increments"

    settings: Settings = field(metadata={"describe": _described})
    module: str
    is_convolution: bool

    @property
    def is_storable(self) -> bool:
        """Whether every method can be distinguished from others of the same name."""
        return all(map(is_recognisable, self.settings.methods))


_Any = TypeVar("_Any", bound=WeightsCell)


def compute_comparison(cell: ComparisonCell, pairs: _Pairs) -> dict[str, Any]:
    """Compare two increments of one weight."""
    (first, second), name = cell.tuned, cell.name
    one, other = (pairs[label].increment(name) for label in cell.tuned)
    return asdict(compare(name, (first, second), one, other, cell.subspaces))


def compute_spectrum(cell: WeightsCell, pairs: _Pairs) -> dict[str, Any]:
    """Squared singular values of W′."""
    pair, name = pairs[cell.tuned[0]], cell.name
    increment, before = pair.increment(name), pair.weights(name)
    after = increment if before is None else increment.add_(before)
    return {"values": squared_singular_values(balanced(after, name)[0]).tolist()}


def compute_analysis(cell: IncrementCell, pairs: _Pairs) -> dict[str, Any]:
    """Analyse one increment, or say why it is left out."""
    (tuned,), name = cell.tuned, cell.name
    pair = pairs[tuned]
    try:
        increment = pair.increment(name)
        weights = pair.weights(name)
        _check(increment)
    except (LeftOutError, DamagedError) as error:
        return {"skipped": skipped(error)}
    stored = pair.matrices[name]
    known = {"tuned": tuned, "module": cell.module, "is_convolution": cell.is_convolution}
    known |= {"dtype": stored.dtype, "note": stored.note}
    found = analyse_matrix(
        name, increment, cell.settings, weights=weights, known=known, consume=True
    )
    return asdict(found)


def _check(increment: torch.Tensor) -> None:
    """Raise the reason to leave an increment out if it cannot be analysed."""
    low, high = (float(value) for value in increment.aminmax())
    if low == high:
        same = "the same" if low else "0"
        reason = f"every entry of the increment is {same}"
        raise LeftOutError(reason if low else f"unchanged: {reason}")
    if reason := not_finite(increment):
        raise LeftOutError(reason, damaged=True)


@dataclass
class AnalysisWork:
    """The cells of an analysis, and their results as rows.

    Attributes:
        pairs: The pairs by label of the fine-tune.
        models: Their matrices as layers of a model.
        settings: Settings for every increment.
        runner: Runs the cells.
        skipped: Tensors that were left out; complete after :meth:`analyses`.
    """

    pairs: _Pairs
    models: Mapping[str, ModelLayers]
    settings: Settings
    runner: Runner

    def __post_init__(self) -> None:
        self.runner = placed(self.runner, self.pairs.values(), self.settings.device)
        if not all(map(is_recognisable, self.settings.methods)):
            # A method that has no definition as text cannot be sent to a worker either.
            self.runner = replace(self.runner, jobs=1)
        self.skipped = [
            replace(one, tuned=tuned) for tuned, pair in self.pairs.items() for one in pair.skipped
        ]

    def analyses(self) -> list[MatrixAnalysis]:
        """Analyse every matrix of every fine-tune."""
        cells = [
            IncrementCell(
                *(name, (tuned,), None, self.settings),
                **self.models[tuned].layers[name].labels,
            )
            for tuned, pair in self.pairs.items()
            for name in pair.names
        ]
        found = []
        for cell, result in self._run(cells, compute_analysis, is_shown=True):
            if "skipped" in result:
                self._skip(cell, **result["skipped"])
            else:
                found.append(MatrixAnalysis.from_json(result))
        return found

    def has_ambiguous_names(self, tuned: str) -> bool:
        """Whether PEFT may take a list of modules of this fine-tune to fit other modules as well.

        The names in an adapter do not show which other modules the model has.
        """
        model = self.models[tuned]
        own = {one.module for one in model.layers.values()}
        return self.pairs[tuned].base is None or end_others(own, model.modules)

    def weights(self, analyses: Iterable[MatrixAnalysis]) -> dict[str, list[float]]:
        """Squared singular values of W′ of the given matrices, by name; none without a base."""
        matrices = [one.matrix for one in analyses if self.pairs[one.matrix.tuned].base is not None]
        cells = [WeightsCell(one.name, (one.tuned,), None) for one in matrices]
        return {cell.name: result["values"] for cell, result in self._run(cells, compute_spectrum)}

    def comparisons(self, analyses: Iterable[MatrixAnalysis]) -> tuple[Comparison, ...]:
        """Compare every two fine-tunes on each matrix that both change."""
        alike: dict[str, list[tuple[str, tuple[int, int]]]] = {}
        for one in analyses:
            alike.setdefault(one.matrix.name, []).append((one.matrix.tuned, one.matrix.shape))
        cells = [
            ComparisonCell(name, (first, second), None, self.settings.subspaces)
            for name, changed_by in alike.items()
            for (first, shape), (second, other) in combinations(changed_by, 2)
            if shape == other
        ]
        return tuple(Comparison(**result) for _, result in self._run(cells, compute_comparison))

    def _run(
        self,
        cells: Iterable[_Any],
        compute: Callable[..., dict[str, Any]],
        *,
        is_shown: bool = False,
    ) -> Iterable[tuple[_Any, dict[str, Any]]]:
        """The cells that can be computed, and their results."""
        runner = self.runner if is_shown else replace(self.runner, progress=None)
        ready = [one for one in map(self._with_entries, cells) if one is not None]
        is_long = takes_seconds(self.pairs.values())
        found = runner.run(ready, partial(compute, pairs=self.pairs), is_long=is_long)
        return zip(ready, found, strict=True)

    def _with_entries(self, cell: _Any) -> _Any | None:
        """A cell with the digests that a store needs; None if the matrix cannot be read."""
        if self.runner.store is None or not cell.is_storable:
            return cell
        try:
            digests = tuple(self.pairs[label].fingerprint(cell.name) for label in cell.tuned)
        except DamagedError as error:
            self._skip(cell, str(error), damaged=True)
            return None
        return replace(cell, entries=digests)

    def _skip(self, cell: WeightsCell, reason: str, *, damaged: bool) -> None:
        self.skipped.append(Skipped(cell.name, reason, damaged, cell.tuned[0]))

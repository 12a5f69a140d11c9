"""The cells of an analysis, one per matrix, and their results as rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

from loca_theory.checkpoints.change.pair import UNCHANGED, check_finite
from loca_theory.checkpoints.change.task import MatrixCell, Pairs, Task
from loca_theory.checkpoints.form.cells import LayerCell
from loca_theory.checkpoints.form.forms import forms_of
from loca_theory.checkpoints.measure.comparison import compare
from loca_theory.checkpoints.measure.figure_data import MatrixAnalysis
from loca_theory.checkpoints.measure.matrix import analyse_matrix
from loca_theory.checkpoints.measure.rounding import stored_change
from loca_theory.checkpoints.measure.rows import Comparison, Matrix
from loca_theory.checkpoints.measure.settings import Settings
from loca_theory.checkpoints.model.names import kind_of, layer_of
from loca_theory.checkpoints.source.checkpoint import LeftOutError, Reason, Skipped
from loca_theory.expressivity.methods.registry import is_recognisable
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.sweeps.store import described
from loca_theory.transforms.inputs import balanced


@dataclass(frozen=True)
class Spectrum:
    """Squared singular values of a matrix."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class WeightsCell(MatrixCell):
    """The spectrum of the weights of one fine-tune."""

    experiment: ClassVar[str] = "weights"
    result: ClassVar[Any] = Spectrum | Skipped


@dataclass(frozen=True)
class ComparisonCell(MatrixCell):
    """The comparison of two fine-tunes, and of some of their leading singular vectors."""

    experiment: ClassVar[str] = "comparisons"
    result: ClassVar[Any] = Comparison | Skipped

    subspaces: int | None


@dataclass(frozen=True)
class IncrementCell(LayerCell):
    """The analysis of one increment, whose row tells the layer's module and its adapters.

    Attributes:
        has_control: Whether the methods are also applied to the entries in random order.
    """

    experiment: ClassVar[str] = "increments"
    result: ClassVar[Any] = MatrixAnalysis | Skipped

    settings: Settings = field(metadata={"describe": described})
    has_control: bool

    @property
    def is_storable(self) -> bool:
        """Whether every method can be distinguished from others of the same name."""
        return all(map(is_recognisable, self.settings.methods))


def weight_spectra(task: Task, matrices: Iterable[Matrix]) -> dict[str, tuple[float, ...]]:
    """Squared singular values of W′ of the given matrices, by name; none without a base."""
    cells = [
        WeightsCell(matrix.name, tuned=(matrix.tuned,))
        for matrix in matrices
        if task.pairs[matrix.tuned].base is not None
    ]
    spectra = task.run(cells, compute_spectrum, is_shown=False)
    return {cell.name: spectrum.values for cell, spectrum in spectra}


def compare_all(
    task: Task, matrices: Iterable[Matrix], subspaces: int | None
) -> tuple[Comparison, ...]:
    """Compare every two fine-tunes on each matrix that both change."""
    alike: dict[tuple[str, tuple[int, int]], list[str]] = {}
    for matrix in matrices:
        alike.setdefault((matrix.name, matrix.shape), []).append(matrix.tuned)
    cells = [
        ComparisonCell(name, subspaces, tuned=labels)
        for (name, _), changed_by in alike.items()
        for labels in combinations(changed_by, 2)
    ]
    return tuple(row for _, row in task.run(cells, compute_comparison, is_shown=False))


def compute_comparison(cell: ComparisonCell, pairs: Pairs) -> Comparison:
    """Compare two increments of one weight."""
    name, (first, second) = cell.name, cell.tuned
    likeness = compare(pairs[first].increment(name), pairs[second].increment(name), cell.subspaces)
    return Comparison(name, kind_of(name), layer_of(name), first, second, **likeness)


def compute_spectrum(cell: WeightsCell, pairs: Pairs) -> Spectrum:
    """Squared singular values of W′."""
    pair, name = pairs[cell.tuned[0]], cell.name
    increment, before = pair.increment(name), pair.weights(name)
    after = increment if before is None else increment.add_(before)
    return Spectrum(tuple(squared_singular_values(balanced(after, name)[0]).tolist()))


def compute_analysis(cell: IncrementCell, pairs: Pairs) -> MatrixAnalysis:
    """Analyse one increment."""
    (tuned,), name = cell.tuned, cell.name
    increment, weights = pairs[tuned].increment(name), pairs[tuned].weights(name)
    low, high = (float(value) for value in increment.aminmax())
    if low == high:
        raise LeftOutError("every entry of the increment is the same" if low else UNCHANGED)
    check_finite(increment)
    stored = pairs[tuned].matrices[name]
    forms = forms_of(cell.layer) if cell.layer.experts == 1 else ()
    known = {"tuned": tuned, "dtype": stored.entry.dtype, "note": stored.note}
    if pairs[tuned].base is not None:
        sides = (stored.load(side) for side in (pairs[tuned].base, pairs[tuned].tuned) if side)
        change = stored_change(*sides)
        if change.changed == 0:
            raise LeftOutError(Reason("unchanged", f"the base rounded to {change.format}"))
        known |= vars(change)
    known |= {"module": cell.layer.module if forms else ""}
    known |= {"adapters": tuple(form.key for form in forms)}
    return analyse_matrix(
        name,
        increment,
        cell.settings,
        weights=weights,
        known=known,
        is_transposed=cell.layer.is_transposed,
        has_control=cell.has_control,
        drawn_by=pairs[tuned].stored_name(name),
    )

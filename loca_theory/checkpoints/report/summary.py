"""Totals over the matrices of an analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.checkpoints.measure.rows import Matrix, MatrixError

_LEVEL = 0.05

# Errors by name of the weight and label of the fine-tune.
_Errors = Mapping[tuple[str, str], list[MatrixError]]


@dataclass(frozen=True)
class MeanError:
    """Mean error of one method over several increments.

    Attributes:
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        error: Relative squared error, weighted by energy, that is, of the whole fine-tune.
        iid_error: The same mean of the expected errors for independent normal entries; None if one
            of these is not known.
        shuffled_error: The same mean of the errors on shuffled entries; None if one of these is not
            known.
        spectral_error: The same mean of the expected errors for the same singular values and random
            singular vectors; None if one of these is not known.
        matrices: Number of increments that the budget fits.
        best_on: Number of these increments on which no method has a smaller error.
    """

    r: int
    method: str
    error: float
    iid_error: float | None
    shuffled_error: float | None
    spectral_error: float | None
    matrices: int
    best_on: int


@dataclass(frozen=True)
class Totals:
    """Totals over several matrices; a median is None if no matrix has that statistic.

    Attributes:
        name: ``all``, a kind, the number of a layer, or the label of a fine-tune.
        matrices: Number of matrices.
        energy: Total energy; None if a term does not fit float64.
        not_normal: Number of matrices on which the test of normality rejects at 5%.
        follow_mp: Number of spectra with a bulk close to the Marchenko–Pastur law.
        median_relative_norm: Median of ‖ΔW‖/‖W₀‖.
        median_weights_cosine: Median cosine between W₀ and W′.
        median_rank_90: Median of the smallest rank that retains 90% of the energy.
        errors: Mean errors, rank by rank.
    """

    name: str
    matrices: int
    energy: float | None
    not_normal: int
    follow_mp: int
    median_relative_norm: float | None
    median_weights_cosine: float | None
    median_rank_90: float | None
    errors: tuple[MeanError, ...]

    @property
    def by_rank(self) -> dict[int, dict[str, MeanError]]:
        """The mean errors by rank, in the given order, and by method."""
        by_rank: dict[int, dict[str, MeanError]] = {}
        for error in self.errors:
            by_rank.setdefault(error.r, {})[error.method] = error
        return by_rank


@dataclass(frozen=True)
class Summary:
    """Totals over all matrices, by kind, by layer and by fine-tune.

    Attributes:
        controlled: Over the matrices whose errors on shuffled entries are known.
    """

    all: Totals
    controlled: Totals
    by_kind: tuple[Totals, ...]
    by_layer: tuple[Totals, ...]
    by_tuned: tuple[Totals, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data: each group of totals by name."""

        def plain(totals: Totals) -> dict[str, Any]:
            return {key: value for key, value in asdict(totals).items() if key != "name"}

        groups = {"by_kind": self.by_kind, "by_layer": self.by_layer, "by_tuned": self.by_tuned}
        named = {
            key: {totals.name: plain(totals) for totals in group} for key, group in groups.items()
        }
        return {"all": plain(self.all), "controlled": plain(self.controlled), **named}


def summarise(matrices: Sequence[Matrix], errors: _Errors, ranks: Sequence[int]) -> Summary:
    """Compute totals over all matrices, by kind, by layer and by fine-tune."""

    def by(field: str, values: Iterable[Any]) -> tuple[Totals, ...]:
        groups = {
            str(n): [matrix for matrix in matrices if getattr(matrix, field) == n] for n in values
        }
        return tuple(_totals(name, group, errors, ranks) for name, group in groups.items())

    controlled = [
        matrix
        for matrix in matrices
        if any(error.shuffled_error is not None for error in errors[matrix.name, matrix.tuned])
    ]
    layers = sorted({matrix.layer for matrix in matrices if matrix.layer is not None})
    return Summary(
        all=_totals("all", matrices, errors, ranks),
        controlled=_totals("controlled", controlled, errors, ranks),
        by_kind=by("kind", dict.fromkeys(matrix.kind for matrix in matrices)),
        by_layer=by("layer", layers),
        by_tuned=by("tuned", dict.fromkeys(matrix.tuned for matrix in matrices)),
    )


def _totals(name: str, matrices: Sequence[Matrix], errors: _Errors, ranks: Sequence[int]) -> Totals:
    energies = [matrix.energy for matrix in matrices if matrix.energy is not None]
    return Totals(
        name=name,
        matrices=len(matrices),
        energy=float(sum(energies)) if len(energies) == len(matrices) else None,
        not_normal=sum(matrix.tv_p_value <= _LEVEL for matrix in matrices),
        follow_mp=sum(matrix.follows_law for matrix in matrices),
        median_relative_norm=_median(matrix.relative_norm for matrix in matrices),
        median_weights_cosine=_median(matrix.weights_cosine for matrix in matrices),
        median_rank_90=_median(matrix.rank_90 for matrix in matrices),
        errors=tuple(_mean_errors(matrices, errors, ranks)),
    )


def _median(values: Iterable[float | None]) -> float | None:
    """Median of the values that are not None."""
    known_values = [value for value in values if value is not None]
    return float(np.median(known_values)) if known_values else None


def _mean_errors(
    matrices: Sequence[Matrix], errors: _Errors, ranks: Sequence[int]
) -> Iterator[MeanError]:
    # By rank and method: the weight and the error of each matrix, and whether no error is smaller.
    rows: dict[tuple[int, str], list[tuple[float, MatrixError, bool]]] = {}
    for matrix, weight in zip(matrices, energy_weights(matrices), strict=True):
        of_matrix = errors[matrix.name, matrix.tuned]
        smallest: dict[int, float] = {}
        for row in of_matrix:
            smallest[row.r] = min(row.error, smallest.get(row.r, row.error))
        for row in of_matrix:
            is_best = row.error == smallest[row.r]
            rows.setdefault((row.r, row.method), []).append((weight, row, is_best))
    methods = dict.fromkeys(method for _, method in rows)
    for r, method in ((r, method) for r in ranks for method in methods if (r, method) in rows):
        weights, group, best = zip(*rows[r, method], strict=True)
        fractions = np.array(weights) / np.sum(weights)
        yield MeanError(
            r,
            method,
            error=float(fractions @ [row.error for row in group]),
            iid_error=_mean(fractions, (row.iid_error for row in group)),
            shuffled_error=_mean(fractions, (row.shuffled_error for row in group)),
            spectral_error=_mean(fractions, (row.spectral_error for row in group)),
            matrices=len(group),
            best_on=sum(best),
        )


def _mean(fractions: NDArray[np.float64], values: Iterable[float | None]) -> float | None:
    """Weighted mean; None if a value is None."""
    known_values = [value for value in values if value is not None]
    return float(fractions @ known_values) if len(known_values) == len(fractions) else None


def energy_weights(matrices: Sequence[Matrix]) -> list[float]:
    """Relative energies, because the energies themselves may not fit float64."""
    # Root mean squares of the entries.
    sizes = [math.hypot(matrix.sigma, matrix.mean) for matrix in matrices]
    largest = max(sizes, default=1.0)
    return [
        math.prod(matrix.shape) * (size / largest) ** 2
        for matrix, size in zip(matrices, sizes, strict=True)
    ]

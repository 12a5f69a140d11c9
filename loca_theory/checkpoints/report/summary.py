"""Totals over the matrices of an analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.checkpoints.measure.matrix import FAR_FROM_LAW
from loca_theory.checkpoints.measure.rows import Matrix, MatrixError

_LEVEL = 0.05

# Errors by name of the weight and label of the fine-tune.
_Errors = dict[tuple[str, str], list[MatrixError]]


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
        found: dict[int, dict[str, MeanError]] = {}
        for error in self.errors:
            found.setdefault(error.r, {})[error.method] = error
        return found


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
        named = {key: {one.name: plain(one) for one in group} for key, group in groups.items()}
        return {"all": plain(self.all), "controlled": plain(self.controlled), **named}


def summarise(
    matrices: Sequence[Matrix], errors: Sequence[MatrixError], ranks: Sequence[int]
) -> Summary:
    """Compute totals over all matrices, by kind, by layer and by fine-tune."""
    mine: _Errors = {(one.name, one.tuned): [] for one in matrices}
    for error in errors:
        mine[error.name, error.tuned].append(error)

    def by(field: str, values: Iterable[Any]) -> tuple[Totals, ...]:
        groups = {str(n): [one for one in matrices if getattr(one, field) == n] for n in values}
        return tuple(_totals(name, group, mine, ranks) for name, group in groups.items())

    controlled = [
        one
        for one in matrices
        if any(error.shuffled_error is not None for error in mine[one.name, one.tuned])
    ]
    layers = sorted({one.layer for one in matrices if one.layer is not None})
    return Summary(
        all=_totals("all", matrices, mine, ranks),
        controlled=_totals("controlled", controlled, mine, ranks),
        by_kind=by("kind", dict.fromkeys(one.kind for one in matrices)),
        by_layer=by("layer", layers),
        by_tuned=by("tuned", dict.fromkeys(one.tuned for one in matrices)),
    )


def _totals(name: str, matrices: Sequence[Matrix], errors: _Errors, ranks: Sequence[int]) -> Totals:
    energies = [one.energy for one in matrices if one.energy is not None]
    return Totals(
        name=name,
        matrices=len(matrices),
        energy=float(sum(energies)) if len(energies) == len(matrices) else None,
        not_normal=sum(one.tv_p_value <= _LEVEL for one in matrices),
        follow_mp=sum(map(follows_law, matrices)),
        median_relative_norm=_median(one.relative_norm for one in matrices),
        median_weights_cosine=_median(one.weights_cosine for one in matrices),
        median_rank_90=_median(one.rank_90 for one in matrices),
        errors=tuple(_mean_errors(matrices, errors, ranks)),
    )


def follows_law(matrix: Matrix) -> bool:
    """Whether the bulk of a spectrum is close to the Marchenko–Pastur law."""
    return matrix.mp_distance is not None and matrix.mp_distance <= FAR_FROM_LAW


def _median(values: Iterable[float | None]) -> float | None:
    """Median of the values that are not None."""
    found = [value for value in values if value is not None]
    return float(np.median(found)) if found else None


def _mean_errors(
    matrices: Sequence[Matrix], errors: _Errors, ranks: Sequence[int]
) -> Iterator[MeanError]:
    # By rank and method: the weight and the error of each matrix, and whether no error is smaller.
    found: dict[tuple[int, str], list[tuple[float, MatrixError, bool]]] = {}
    for one, weight in zip(matrices, energy_weights(matrices), strict=True):
        mine = errors[one.name, one.tuned]
        least: dict[int, float] = {}
        for each in mine:
            least[each.r] = min(each.error, least.get(each.r, each.error))
        for each in mine:
            is_best = each.error == least[each.r]
            found.setdefault((each.r, each.method), []).append((weight, each, is_best))
    methods = dict.fromkeys(method for _, method in found)
    for r, method in ((r, method) for r in ranks for method in methods if (r, method) in found):
        weights, group, best = zip(*found[r, method], strict=True)
        fractions = np.array(weights) / np.sum(weights)
        yield MeanError(
            r,
            method,
            error=float(fractions @ [one.error for one in group]),
            iid_error=_mean(fractions, (one.iid_error for one in group)),
            shuffled_error=_mean(fractions, (one.shuffled_error for one in group)),
            spectral_error=_mean(fractions, (one.spectral_error for one in group)),
            matrices=len(group),
            best_on=sum(best),
        )


def _mean(fractions: NDArray[np.float64], values: Iterable[float | None]) -> float | None:
    """Weighted mean; None if a value is None."""
    known = [value for value in values if value is not None]
    return float(fractions @ known) if len(known) == len(fractions) else None


def root_mean_square(matrix: Matrix) -> float:
    """Root mean square of the entries of an increment."""
    return math.hypot(matrix.sigma, matrix.mean)


def energy_weights(matrices: Sequence[Matrix]) -> list[float]:
    """Relative energies, because the energies themselves may not fit float64."""
    sizes = [root_mean_square(matrix) for matrix in matrices]
    largest = max(sizes, default=1.0)
    return [
        math.prod(one.shape) * (size / largest) ** 2
        for one, size in zip(matrices, sizes, strict=True)
    ]

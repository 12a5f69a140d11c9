"""Totals over the matrices of an analysis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.checkpoints.matrix import FAR_FROM_LAW
from loca_theory.checkpoints.rows import Matrix, MatrixError

_LEVEL = 0.05


@dataclass(frozen=True)
class MeanError:
    """Mean error of one method over several increments.

    Attributes:
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        error: Relative squared error, weighted by energy, that is, of the whole fine-tune.
        iid_error: The same mean of the expected errors for independent normal entries; None if one
            of these is not known.
        shuffled_error: The same mean of the errors on shuffled entries.
        spectral_error: The same mean of the expected errors for the same singular values and random
            singular vectors; None if one of these is not known.
        matrices: Number of increments that the budget fits.
        best_on: Number of these increments on which no method has a smaller error.
    """

    r: int
    method: str
    error: float
    iid_error: float | None
    shuffled_error: float
    spectral_error: float | None
    matrices: int
    best_on: int


@dataclass(frozen=True)
class Totals:
    """Totals over several matrices; a median is None if no matrix has that statistic.

    Attributes:
        name: ``all``, a kind, or the number of a layer.
        matrices: Number of matrices.
        energy: Total energy; None if a term does not fit float64.
        not_normal: Number of matrices on which the test of normality rejects at 5%.
        not_normal_as_printed: Number of matrices on which the paper's test rejects at 5%.
        follow_mp: Number of spectra with a bulk close to the Marchenko–Pastur law.
        with_spikes: Number of spectra with eigenvalues above that law.
        median_tv: Median total variation from a normal law.
        median_outlier_mass: Median fraction of the energy outside the law's support.
        median_mp_distance: Median Kolmogorov distance from the law, over spectra with a bulk.
        median_spikes: Median number of eigenvalues above the law.
        median_stable_rank: Median stable rank.
        median_zero_fraction: Median proportion of zeros.
        errors: Mean errors, rank by rank.
    """

    name: str
    matrices: int
    energy: float | None
    not_normal: int
    not_normal_as_printed: int
    follow_mp: int
    with_spikes: int
    median_tv: float | None
    median_outlier_mass: float | None
    median_mp_distance: float | None
    median_spikes: float | None
    median_stable_rank: float | None
    median_zero_fraction: float | None
    errors: tuple[MeanError, ...]


@dataclass(frozen=True)
class Summary:
    """Totals over all matrices, by kind and by layer."""

    all: Totals
    by_kind: tuple[Totals, ...]
    by_layer: tuple[Totals, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data: each group of totals by name."""

        def plain(totals: Totals) -> dict[str, Any]:
            return {key: value for key, value in asdict(totals).items() if key != "name"}

        groups = {"by_kind": self.by_kind, "by_layer": self.by_layer}
        named = {key: {one.name: plain(one) for one in group} for key, group in groups.items()}
        return {"all": plain(self.all), **named}


def summarise(
    matrices: Sequence[Matrix], errors: Sequence[MatrixError], ranks: Sequence[int]
) -> Summary:
    """Compute totals over all matrices, by kind and by layer.

    Args:
        matrices: The matrices.
        errors: Error of each method on each of them.
        ranks: Ranks to summarise.
    """
    kinds = dict.fromkeys(one.kind for one in matrices)
    layers = sorted({one.layer for one in matrices if one.layer is not None})
    mine: dict[str, list[MatrixError]] = {one.name: [] for one in matrices}
    for error in errors:
        mine[error.name].append(error)

    def totals(name: str, group: Sequence[Matrix]) -> Totals:
        return _totals(name, group, list(_mean_errors(group, mine, ranks)))

    return Summary(
        totals("all", matrices),
        tuple(totals(kind, [one for one in matrices if one.kind == kind]) for kind in kinds),
        tuple(totals(str(n), [one for one in matrices if one.layer == n]) for n in layers),
    )


def _totals(name: str, matrices: Sequence[Matrix], errors: Sequence[MeanError]) -> Totals:
    printed = [one.tv_p_value_as_printed for one in matrices]
    distances = [one.mp_distance for one in matrices]
    energies = [one.energy for one in matrices if one.energy is not None]
    return Totals(
        name=name,
        matrices=len(matrices),
        energy=float(sum(energies)) if len(energies) == len(matrices) else None,
        not_normal=sum(one.tv_p_value <= _LEVEL for one in matrices),
        not_normal_as_printed=sum(value is not None and value <= _LEVEL for value in printed),
        follow_mp=sum(value is not None and value <= FAR_FROM_LAW for value in distances),
        with_spikes=sum(one.spikes > 0 for one in matrices),
        median_tv=_median(one.tv for one in matrices),
        median_outlier_mass=_median(one.outlier_mass for one in matrices),
        median_mp_distance=_median(distances),
        median_spikes=_median(one.spikes for one in matrices),
        median_stable_rank=_median(one.stable_rank for one in matrices),
        median_zero_fraction=_median(one.zero_fraction for one in matrices),
        errors=tuple(errors),
    )


def _median(values: Iterable[float | None]) -> float | None:
    """Median of the values that are not None."""
    found = [value for value in values if value is not None]
    return float(np.median(found)) if found else None


def _mean_errors(
    matrices: Sequence[Matrix], errors: dict[str, list[MatrixError]], ranks: Sequence[int]
) -> Iterator[MeanError]:
    weights = _weights(matrices)
    methods = dict.fromkeys(error.method for one in matrices for error in errors[one.name])
    for r in ranks:
        at = {
            one.name: {error.method: error for error in errors[one.name] if error.r == r}
            for one in matrices
        }
        for method in methods:
            found = [
                (weight, at[one.name][method])
                for one, weight in zip(matrices, weights, strict=True)
                if method in at[one.name]
            ]
            if not found:
                continue
            fractions = np.array([weight for weight, _ in found])
            fractions /= fractions.sum()
            best = sum(
                error.error == min(one.error for one in at[error.name].values())
                for _, error in found
            )
            yield MeanError(
                r,
                method,
                error=float(fractions @ [error.error for _, error in found]),
                iid_error=_mean(fractions, (error.iid_error for _, error in found)),
                shuffled_error=float(fractions @ [error.shuffled_error for _, error in found]),
                spectral_error=_mean(fractions, (error.spectral_error for _, error in found)),
                matrices=len(found),
                best_on=best,
            )


def _mean(fractions: NDArray[np.float64], values: Iterable[float | None]) -> float | None:
    """Weighted mean; None if a value is None."""
    known = [value for value in values if value is not None]
    return float(fractions @ known) if len(known) == len(fractions) else None


def _weights(matrices: Sequence[Matrix]) -> list[float]:
    """Relative energies, because the energies themselves may not fit float64."""
    sizes = [math.hypot(one.sigma, one.mean) for one in matrices]
    largest = max(sizes, default=1.0)
    return [
        math.prod(one.shape) * (size / largest) ** 2
        for one, size in zip(matrices, sizes, strict=True)
    ]

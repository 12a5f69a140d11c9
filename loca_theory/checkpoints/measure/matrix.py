"""Analysis of one weight increment: normality, dependence, and the error of each method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from loca_theory.checkpoints.measure import shared_draws
from loca_theory.checkpoints.measure.comparison import (
    compare_subspaces,
    norm_and_cosine,
)
from loca_theory.checkpoints.measure.errors import (
    coded_errors,
    fitting_budget,
    matrix_errors,
)
from loca_theory.checkpoints.measure.figure_data import MatrixAnalysis, eigenvalue_histogram
from loca_theory.checkpoints.measure.rows import FAR_FROM_LAW, Matrix
from loca_theory.checkpoints.measure.settings import Settings
from loca_theory.checkpoints.model.names import kind_of, layer_of
from loca_theory.expressivity.methods.pretrained.weights import UsesWeights
from loca_theory.increments import calibrated_test, fit_bulk
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import histogram
from loca_theory.increments.printed_test import AcceptanceError
from loca_theory.increments.ranks import effective_rank, energy_ranks, stable_rank
from loca_theory.increments.spectrum import spectral_statistics, tail_exponent
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import TensorLike, balanced, fits_squared, usable

UNRELATED = 0.5
"""Cosine between W₀ and W′ below which one is not a fine-tune of the other."""

_UNKNOWN = {"tuned": "", "dtype": "", "module": "", "adapters": (), "note": ""}
_CELLS = 8  # cells of the fine grid per cell of the figure


def analyse_matrix(
    name: str,
    increment: torch.Tensor,
    settings: Settings,
    *,
    weights: TensorLike | None = None,
    known: Mapping[str, Any] = MappingProxyType({}),
    is_transposed: bool = False,
    has_control: bool = True,
    drawn_by: str | None = None,
) -> MatrixAnalysis:
    """Analyse one increment.

    If the increment is multiplied by a constant, however large or small, only ``sigma``, ``mean``,
    ``energy``, ``relative_norm``, ``mp_sigma``, the subspaces and the p-value as printed change;
    the noise in that test has a fixed size.

    Args:
        name: Name of the weight.
        increment: ΔW, shape (p, q), a real tensor, finite, not constant. It is overwritten.
        settings: Settings for the analysis.
        weights: W₀, of the same shape; None if it is not known.
        known: Fields of the row that are known: ``tuned``, ``dtype``, ``module``, ``adapters``,
            ``note``.
        is_transposed: Whether the matrix is stored as (inputs, outputs), as that of a ``Conv1D``.
        has_control: Whether the methods are also applied to the entries in random order.
        drawn_by: What determines the random numbers together with the seed; by default the name.

    Returns:
        The analysis.

    Raises:
        InvalidArgumentError: the increment is constant, not finite, or not a real dense matrix.
        ResourceError: the device has not enough memory for it.
    """
    p, q = increment.shape
    draws = partial(shared_draws.of_matrix, settings.seed, drawn_by or name)
    way_out = f'leave it out with max_size={p * q - 1}, or use device="cpu"'
    with device_memory(f"the analysis of {name} ({p}x{q})", settings.device, way_out):
        known = {"name": name, **_UNKNOWN, **known}
        given = usable(increment, "increment").detach().to(settings.device)
        counts = histogram(given)
        base_norm = cosine = pretrained = None
        users = [method.name for method in settings.methods if isinstance(method, UsesWeights)]
        subspaces: dict[str, Any] = {}
        if weights is not None:
            before = usable(weights, "weights").detach().to(settings.device)
            base_norm, cosine = norm_and_cosine(before, given)
            if settings.subspaces is not None and base_norm:
                subspaces = compare_subspaces(given, before, settings.subspaces)
            pretrained = before if users else None
            del before, weights
        change, exponent = balanced(given, "increment")
        del given
        eigenvalues = squared_singular_values(change)
        by_rows, by_columns = (
            float(change.mean(axis, dtype=torch.float64).square().mean()) for axis in (1, 0)
        )
        total = float(eigenvalues.sum())
        mean_square = total / (p * q)
        notes = [known["note"]] if known["note"] else []
        if users and pretrained is None:
            notes.append(f"{', '.join(users)}: with random weights, because the base is not known")
        if cosine is not None and cosine < UNRELATED:
            notes.append(f"unrelated to the base's weight: their cosine is below {UNRELATED}")
        variation = calibrated_test(
            counts,
            draws("bootstrap"),
            epsilon=settings.epsilon,
            null=shared_draws.null(counts.size, settings.seed),
        )
        try:
            printed = settings.printed.p_value(
                counts,
                draws("printed"),
                shared_draws.reference(settings.printed.samples, settings.seed),
            )
        except AcceptanceError as error:
            printed = None
            notes.append(str(error))
        bulk = fit_bulk(eigenvalues, p, q)
        has_law = bulk.kolmogorov is not None and bulk.kolmogorov <= FAR_FROM_LAW
        if bulk.sigma is None or bulk.kolmogorov is None:
            notes.append(
                f"the spectrum has no bulk: all but {bulk.spikes} eigenvalues are rounding errors"
            )
        elif not has_law:
            notes.append(
                "the spectrum is too far from a Marchenko–Pastur law (a Kolmogorov distance above "
                f"{FAR_FROM_LAW}) for its σ and spikes to mean much"
            )
        energy = math.ldexp(total, 2 * exponent) if fits_squared(exponent) else None
        if energy is None:
            notes.append("the energy does not fit float64")
        fitting = partial(fitting_budget, p, q, settings=settings, is_transposed=is_transposed)
        budgets = [budget for r in settings.ranks if (budget := fitting(r))]
        if left_out := [r for r in settings.ranks if r not in [budget.r for budget in budgets]]:
            notes.append(
                f"no errors at r = {', '.join(map(str, left_out))}: the budget exceeds the matrix"
            )
        known["note"] = "; ".join(notes)
        rank_50, rank_90, rank_99 = energy_ranks(eigenvalues, (0.5, 0.9, 0.99))
        matrix = Matrix(
            **known,
            **subspaces,
            shape=(p, q),
            kind=kind_of(name, settings.group),
            layer=layer_of(name),
            sigma=counts.standard_deviation,
            mean=counts.mean,
            energy=energy,
            relative_norm=_quotient(math.sqrt(total), exponent, base_norm) if base_norm else None,
            weights_cosine=cosine,
            zero_fraction=counts.zero_fraction,
            excess_kurtosis=counts.excess_kurtosis,
            row_mean_energy=by_rows / mean_square,
            column_mean_energy=by_columns / mean_square,
            tv=variation.estimate,
            tv_low=variation.low,
            tv_high=variation.high,
            tv_p_value=variation.p_value,
            tv_p_value_as_printed=printed,
            mp_sigma=None if bulk.sigma is None else math.ldexp(bulk.sigma, exponent),
            mp_distance=bulk.kolmogorov,
            mp_wasserstein=bulk.wasserstein,
            outlier_mass=bulk.outlier_mass,
            spikes=bulk.spikes,
            T=spectral_statistics(eigenvalues, p, q)["T"],
            stable_rank=stable_rank(eigenvalues),
            effective_rank=effective_rank(eigenvalues),
            rank_50=rank_50,
            rank_90=rank_90,
            rank_99=rank_99,
            tail_exponent=tail_exponent(eigenvalues),
        )
        # Computed before the errors, which overwrite the increment.
        coded = coded_errors(matrix, change, settings, draws)
        cells = counts.counts[1:-1].reshape(-1, _CELLS).sum(axis=1) / counts.size
        return MatrixAnalysis(
            matrix,
            matrix_errors(
                matrix,
                change,
                eigenvalues,
                budgets,
                settings,
                draws,
                weights=pretrained,
                is_transposed=is_transposed,
                has_control=has_control,
            ),
            tuple(cells.tolist()),
            tuple(eigenvalues.tolist()),
            eigenvalue_histogram(matrix, eigenvalues, bulk.sigma if has_law else None),
            coded,
        )


def _quotient(norm: float, exponent: int, other: float) -> float | None:
    """2ᵉ norm / other; None if it does not fit float64."""
    fraction, power = math.frexp(other)
    try:
        return math.ldexp(norm / fraction, exponent - power)
    except OverflowError:
        return None

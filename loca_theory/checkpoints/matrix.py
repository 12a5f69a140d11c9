"""Analysis of one weight increment: normality, dependence, and the error of each method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loca_theory import _arguments
from loca_theory.checkpoints import shared_draws
from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.rows import Matrix, MatrixError
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import (
    Accounting,
    Budget,
    Engine,
    LowRank,
    Method,
    find_methods,
    has_spectral_error,
    mean_retained_energies,
    spectral_error,
)
from loca_theory.expressivity.methods.method import checked_numbers
from loca_theory.increments import (
    AcceptanceError,
    PrintedTest,
    calibrated_test,
    fit_bulk,
    histogram,
    leading_squared_singular_values,
    spectral_statistics,
    squared_singular_values,
    stable_rank,
    tail_exponent,
)
from loca_theory.sweeps import generator

if TYPE_CHECKING:
    import torch

    from loca_theory.transforms.inputs import TensorLike

ANALYSED = find_methods(("R", "F1", "FourierFT", "F2", "F3", "D", "S"))
"""Methods whose errors on an increment are computed by default."""

FAR_FROM_LAW = 0.1
"""Kolmogorov distance beyond which a spectrum has no Marchenko–Pastur bulk.

The spectrum of independent entries is within this distance if p and q are at least about 30.
"""

_CELLS = 8  # cells of the fine grid per cell of the figure


@dataclass(frozen=True)
class Settings:
    """Settings for the analysis of every increment; see :func:`~loca_theory.checkpoints.analyze`.

    Raises:
        InvalidArgumentError: a value is out of range.
    """

    ranks: tuple[int, ...]
    methods: tuple[Method, ...] = ANALYSED
    seed: int = 0
    epsilon: float = 0.001
    accounting: Accounting = Accounting.PAPER
    device: str = "cpu"
    printed: PrintedTest = field(default_factory=PrintedTest)

    def describe(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "ranks": list(self.ranks),
            "methods": [method.name for method in self.methods],
            "accounting": self.accounting.value,
            "printed": asdict(self.printed),
        }

    def __post_init__(self) -> None:
        find_methods(self.methods)
        object.__setattr__(self, "ranks", _arguments.ranks(self.ranks))
        _arguments.fields_to_int(self, "seed")
        if not 0 <= _arguments.real_number("epsilon", self.epsilon) < 1:
            msg = f"epsilon must be at least 0 and below 1, not {self.epsilon}; "
            raise InvalidArgumentError(msg + "choose a value such as epsilon=0.001")


@dataclass(frozen=True)
class MatrixAnalysis:
    """Results of the analysis of one increment.

    Attributes:
        matrix: Statistics of the increment.
        errors: Relative error of each method, rank by rank.
        entries: Fractions of the standardised entries in 128 equal cells from −8 to 8.
        eigenvalues: Squared singular values of ΔW, smallest first. If the largest entry, of about
            2ᵉ, lies beyond 2^±32, they are those of ΔW/2ᵉ, so that squares stay in range.
    """

    matrix: Matrix
    errors: tuple[MatrixError, ...]
    entries: tuple[float, ...]
    eigenvalues: tuple[float, ...]

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> MatrixAnalysis:
        """Restore the results from JSON of what :func:`dataclasses.asdict` returns."""
        matrix = stored["matrix"]
        return cls(
            Matrix(**{**matrix, "shape": tuple(matrix["shape"])}),
            tuple(MatrixError(**one) for one in stored["errors"]),
            tuple(stored["entries"]),
            tuple(stored["eigenvalues"]),
        )


def analyse_matrix(
    name: str,
    increment: TensorLike,
    settings: Settings,
    *,
    dtype: str | None = None,
    consume: bool = False,
) -> MatrixAnalysis:
    """Analyse one increment.

    If the increment is multiplied by a constant, however large or small, only ``sigma``, ``mean``,
    ``energy``, ``mp_sigma`` and the p-value as printed change; the noise in that test has a fixed
    size.

    Args:
        name: Name of the weight; together with the seed it determines the random numbers.
        increment: ΔW, shape (p, q), a real tensor or NumPy array, finite, not constant.
        settings: Settings for the analysis.
        dtype: Name of the element type to report; by default the increment's own.
        consume: Whether the increment may be overwritten, which saves a copy.

    Raises:
        InvalidArgumentError: the increment is constant, not finite, or not a real dense matrix.
        ResourceError: the device has not enough memory for it.
    """
    from loca_theory.transforms.devices import device_memory

    shape = tuple(getattr(increment, "shape", ()))
    what = f"the analysis of {name} ({'x'.join(map(str, shape))})"
    way_out = f'leave it out with max_size={math.prod(shape) - 1}, or use device="cpu"'
    with device_memory(what, settings.device, way_out):
        return _analysed(name, increment, settings, dtype=dtype, consume=consume)


def _analysed(
    name: str, increment: TensorLike, settings: Settings, *, dtype: str | None, consume: bool
) -> MatrixAnalysis:
    import torch

    from loca_theory.transforms.inputs import balanced, fits_squared, usable

    given = usable(increment, "increment").detach()
    consume = consume or given.device.type != torch.device(settings.device).type
    given = given.to(settings.device)
    counts = histogram(given)
    change, exponent = balanced(given, "increment")
    if change is given and not consume:
        change = change.clone()
    del given
    eigenvalues = squared_singular_values(change)
    p, q = change.shape
    notes: list[str] = []
    variation = calibrated_test(
        counts,
        generator(settings.seed, "increments.bootstrap", name),
        epsilon=settings.epsilon,
        null=shared_draws.null(counts.size, settings.seed),
    )
    try:
        printed = settings.printed.p_value(
            counts,
            generator(settings.seed, "increments.printed", name),
            shared_draws.reference(settings.printed, settings.seed),
        )
    except AcceptanceError as error:
        printed = None
        notes.append(str(error))
    bulk = fit_bulk(eigenvalues, p, q)
    if bulk.sigma is None or bulk.kolmogorov is None:
        notes.append(
            f"the spectrum has no bulk: all but {bulk.spikes} eigenvalues are rounding errors"
        )
    elif bulk.kolmogorov > FAR_FROM_LAW:
        notes.append("the spectrum has no Marchenko-Pastur bulk; mp_sigma and spikes mean little")
    energy = None
    if fits_squared(exponent):
        energy = math.ldexp(float(eigenvalues.sum()), 2 * exponent)
    else:
        notes.append("the energy does not fit float64")
    budgets = [budget for r in settings.ranks if (budget := _fitting(p, q, r, settings))]
    if left_out := [r for r in settings.ranks if r not in [budget.r for budget in budgets]]:
        notes.append(
            f"no errors at r = {', '.join(map(str, left_out))}: the budget exceeds the matrix"
        )
    matrix = Matrix(
        name=name,
        shape=(p, q),
        dtype=dtype or str(increment.dtype).removeprefix("torch."),
        kind=kind_of(name),
        layer=layer_of(name),
        sigma=counts.standard_deviation,
        mean=counts.mean,
        energy=energy,
        zero_fraction=counts.zero_fraction,
        excess_kurtosis=counts.excess_kurtosis,
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
        tail_exponent=tail_exponent(eigenvalues),
        note="; ".join(notes),
    )
    cells = counts.counts[1:-1].reshape(-1, _CELLS).sum(axis=1) / counts.size
    return MatrixAnalysis(
        matrix,
        _errors(matrix, change, eigenvalues, budgets, settings),
        tuple(cells.tolist()),
        tuple(eigenvalues.tolist()),
    )


def _fitting(p: int, q: int, r: int, settings: Settings) -> Budget | None:
    """The budget of a rank; None if it exceeds what the matrix holds for any of the methods."""
    with suppress(InvalidArgumentError):
        budget = Budget(p, q, r, settings.accounting)
        # R's numbers are always counted as in the paper, whatever accounting the others have.
        for one in (budget, Budget(p, q, r)):
            for method in settings.methods:
                method.check_budget(one)
        return budget
    return None


def _errors(
    matrix: Matrix,
    increment: torch.Tensor,
    eigenvalues: NDArray[np.float64],
    budgets: list[Budget],
    settings: Settings,
) -> tuple[MatrixError, ...]:
    if not budgets:
        return ()
    ranks = [budget.r for budget in budgets]
    rng = generator(settings.seed, "increments.shuffle", matrix.name)
    choices = generator(settings.seed, "increments.choices", matrix.name)
    total = float(eigenvalues.sum())
    methods = settings.methods
    found = {
        "error": _relative_errors(increment, eigenvalues[::-1], methods, budgets, total, choices)
    }
    # Shuffle in place: two matrices of the largest size may not fit into memory.
    shuffled = _shuffled(increment, rng)
    leading = leading_squared_singular_values(shuffled, max(ranks), rng)
    found["shuffled_error"] = _relative_errors(shuffled, leading, methods, budgets, total, choices)
    independent = {method.name: _independent(method, budgets) for method in methods}
    singular_values = np.sqrt(eigenvalues)
    spectral = {
        method.name: [spectral_error(singular_values, method, budget) for budget in budgets]
        for method in methods
        if has_spectral_error(method)
    }
    errors = []
    for i, budget in enumerate(budgets):
        for method in methods:
            values = {key: float(np.clip(found[key][method.name][i], 0, 1)) for key in found}
            errors.append(
                MatrixError(
                    *(matrix.name, matrix.kind, matrix.layer, matrix.energy),
                    r=budget.r,
                    method=method.name,
                    error=values["error"],
                    iid_error=independent[method.name][i],
                    shuffled_error=values["shuffled_error"],
                    spectral_error=spectral[method.name][i] if method.name in spectral else None,
                )
            )
    return tuple(errors)


def _relative_errors(
    matrix: torch.Tensor,
    eigenvalues: NDArray[np.float64],
    methods: Sequence[Method],
    budgets: list[Budget],
    total: float,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Relative error of every method; the eigenvalues must be sorted, largest first."""
    low_rank = [method for method in methods if type(method) is LowRank]
    others = [method for method in methods if type(method) is not LowRank]
    retained = mean_retained_energies(matrix, others, budgets, rng)
    # The eigenvalues give R's energies without another decomposition.
    sums = np.cumsum(eigenvalues)[[budget.r - 1 for budget in budgets]]
    retained |= {method.name: sums for method in low_rank}
    return {name: 1 - energies / total for name, energies in retained.items()}


def _shuffled(increment: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Put the entries in random order, in place.

    NumPy draws the order on every device, so that a stored result is valid for any device. A GPU
    would be a few seconds faster at 4096×4096, but would need three times the memory.
    """
    entries = increment.cpu().contiguous().view(-1)
    rng.shuffle(entries.numpy())
    return increment.copy_(entries.view(increment.shape))


def _independent(method: Method, budgets: list[Budget]) -> list[float | None]:
    """Expected errors for independent normal entries; None if only simulation can give them."""
    known = [budget for budget in budgets if Engine.EXACT in method.engines(budget)]
    errors = checked_numbers(method, "expected_errors", known) if known else ()
    found = dict(zip(known, map(float, errors), strict=True))
    return [found.get(budget) for budget in budgets]

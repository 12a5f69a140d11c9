"""One weight increment: is it normal, is it independent, who keeps most of it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import (
    Accounting,
    Budget,
    Engine,
    LowRank,
    Method,
    MonteCarlo,
    Sampler,
    Series,
    find_methods,
    mean_retained_energies,
)
from loca_theory.increments import (
    AcceptanceError,
    BulkFit,
    Histogram,
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
from loca_theory.sweeps import Runner, generator

if TYPE_CHECKING:
    import torch

    from loca_theory.transforms.inputs import TensorLike

ANALYSED = find_methods(("R", "F1", "FourierFT", "F2", "F3", "D", "S"))
"""Methods that a real increment is measured against, unless others are named."""

CURVES = tuple(method.name for method in ANALYSED)

STATISTICS = (
    "sigma", "mean", "energy", "zero_fraction", "excess_kurtosis", "tv", "tv_low", "tv_high",
    "tv_p_value", "tv_p_value_as_printed", "mp_sigma", "mp_distance", "mp_wasserstein",
    "outlier_mass", "spikes", "T", "stable_rank", "tail_exponent",
)  # fmt: skip
"""Names of the statistics of one increment."""

FAR_FROM_LAW = 0.1
"""Kolmogorov distance beyond which a spectrum has no Marchenko–Pastur bulk.

Those of independent entries come closer than this from sides of about 30 on.
"""

# Draws of independent matrices that R's reference is the mean of: its spread is tiny.
_REFERENCE_DRAWS = 64


@dataclass(frozen=True)
class Settings:
    """How increments are analysed.

    Attributes:
        ranks: LoRA ranks that set the budgets; those that do not fit a matrix are left out there.
        methods: Methods that it is measured against.
        seed: Root seed of the bootstrap, the shuffle and the random choices.
        epsilon: Total variation that still counts as normal.
        accounting: How budgets count.
        device: Where the linear algebra runs.
        printed: Settings of the test as the paper prints it.
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
        return {**asdict(self), "methods": [method.name for method in self.methods]}


@dataclass(frozen=True)
class MatrixAnalysis:
    """What was found.

    Attributes:
        statistics: The columns of the report except names and errors.
        errors: For each rank and method: ``r``, ``curve``, ``error``, ``iid_error`` (its
            expectation for independent normal entries of that shape) and ``shuffled_error`` (of
            the same entries in random order: dependence gone, their distribution kept).
        counts: Counts of standardised entries, for the histogram.
        bulk: The Marchenko–Pastur fit, of the eigenvalues as they stand below.
        eigenvalues: Squared singular values of ΔW/2^exponent, smallest first.
        exponent: 0, unless the largest entry lies beyond 2^32 or below 2^-32: then of about its
            size, so that squares stay in range.
        notes: What a reader has to know about this matrix.
    """

    statistics: dict[str, Any]
    errors: list[dict[str, Any]]
    counts: Histogram
    bulk: BulkFit
    eigenvalues: NDArray[np.float64]
    exponent: int
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Plain data that :meth:`from_json` takes back."""
        return {
            "statistics": self.statistics,
            "errors": self.errors,
            "counts": {**asdict(self.counts), "counts": self.counts.counts.tolist()},
            "bulk": asdict(self.bulk),
            "eigenvalues": self.eigenvalues.tolist(),
            "exponent": self.exponent,
            "notes": self.notes,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> MatrixAnalysis:
        """The inverse of :meth:`to_json`."""
        counts = {**stored["counts"], "counts": np.array(stored["counts"]["counts"])}
        return cls(
            stored["statistics"],
            stored["errors"],
            Histogram(**counts),
            BulkFit(**stored["bulk"]),
            np.array(stored["eigenvalues"]),
            stored["exponent"],
            stored["notes"],
        )


def analyse_matrix(
    name: str, increment: TensorLike, settings: Settings, *, consume: bool = False
) -> MatrixAnalysis:
    """Everything that is reported of one increment.

    All but ``sigma``, ``mean``, ``energy``, ``mp_sigma`` and the p-value as printed, whose noise
    has a size, are the same for a multiple of the increment, however large or small. ``energy`` is
    None where it does not fit float64; what the fit of the bulk has is None without a bulk.

    Args:
        name: Its name, which with the seed decides the random numbers.
        increment: ΔW, shape (p, q), a real tensor or NumPy array, finite, not constant.
        settings: How.
        consume: The increment is not needed any more and may be overwritten, which saves a copy.

    Raises:
        InvalidArgumentError: the increment is constant or not finite, or no real dense matrix.
        ResourceError: the device has not enough memory for it.
    """
    from loca_theory.transforms.devices import device_memory

    shape = tuple(getattr(increment, "shape", ()))
    what = f"the analysis of {name} ({'x'.join(map(str, shape))})"
    way_out = f'leave it out with max_size={math.prod(shape) - 1}, or use device="cpu"'
    with device_memory(what, settings.device, way_out):
        return _analysed(name, increment, settings, consume=consume)


def _analysed(
    name: str, increment: TensorLike, settings: Settings, *, consume: bool
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
        counts, generator(settings.seed, "increments.bootstrap", name), epsilon=settings.epsilon
    )
    try:
        printed = settings.printed.p_value(
            counts, generator(settings.seed, "increments.printed", name)
        )
    except AcceptanceError as error:
        printed = None
        notes.append(str(error))
    bulk = fit_bulk(eigenvalues, p, q)
    if bulk.sigma is None or bulk.kolmogorov is None:
        notes.append(f"the spectrum has no bulk: {bulk.spikes} eigenvalues, and rounding")
    elif bulk.kolmogorov > FAR_FROM_LAW:
        notes.append("the spectrum has no Marchenko-Pastur bulk; mp_sigma and spikes mean little")
    energy = None
    if fits_squared(exponent):
        energy = math.ldexp(float(eigenvalues.sum()), 2 * exponent)
    else:
        notes.append("its energy does not fit float64")
    budgets = [budget for r in settings.ranks if (budget := _fitting(p, q, r, settings))]
    if left_out := [r for r in settings.ranks if r not in [budget.r for budget in budgets]]:
        notes.append(
            f"no errors at r = {', '.join(map(str, left_out))}: more than the matrix holds"
        )
    errors = _errors(name, change, eigenvalues, budgets, settings)
    statistics = {
        "sigma": counts.deviation,
        "mean": counts.mean,
        "energy": energy,
        "zero_fraction": counts.zero_fraction,
        "excess_kurtosis": counts.excess_kurtosis,
        "tv": variation.estimate,
        "tv_low": variation.low,
        "tv_high": variation.high,
        "tv_p_value": variation.p_value,
        "tv_p_value_as_printed": printed,
        "mp_sigma": None if bulk.sigma is None else math.ldexp(bulk.sigma, exponent),
        "mp_distance": bulk.kolmogorov,
        "mp_wasserstein": bulk.wasserstein,
        "outlier_mass": bulk.outlier_mass,
        "spikes": bulk.spikes,
        "T": spectral_statistics(eigenvalues, p, q)["T"],
        "stable_rank": stable_rank(eigenvalues),
        "tail_exponent": tail_exponent(eigenvalues),
    }
    return MatrixAnalysis(statistics, errors, counts, bulk, eigenvalues, exponent, notes)


def _fitting(p: int, q: int, r: int, settings: Settings) -> Budget | None:
    """The budget of a rank, None where some method would be paid for more than the matrix holds."""
    with suppress(InvalidArgumentError):
        budget = Budget(p, q, r, settings.accounting)
        # R's own numbers are counted as the paper does, whatever the others are given.
        for one in (budget, Budget(p, q, r)):
            for method in settings.methods:
                method.check_budget(one)
        return budget
    return None


def _errors(
    name: str,
    increment: torch.Tensor,
    eigenvalues: NDArray[np.float64],
    budgets: list[Budget],
    settings: Settings,
) -> list[dict[str, Any]]:
    if not budgets:
        return []
    ranks = [budget.r for budget in budgets]
    rng = generator(settings.seed, "increments.shuffle", name)
    choices = generator(settings.seed, "increments.choices", name)
    total = float(eigenvalues.sum())
    methods = settings.methods
    found = {"error": _left(increment, eigenvalues[::-1], methods, budgets, total, choices)}
    # In place: two matrices of the largest size may not fit.
    shuffled = _shuffled(increment, rng)
    leading = leading_squared_singular_values(shuffled, max(ranks), rng)
    found["shuffled_error"] = _left(shuffled, leading, methods, budgets, total, choices)
    independent = {method.name: _independent(method, budgets, settings.seed) for method in methods}
    errors = []
    for i, budget in enumerate(budgets):
        for method in methods:
            values = {key: float(np.clip(found[key][method.name][i], 0, 1)) for key in found}
            errors.append(
                {
                    "r": budget.r,
                    "curve": method.name,
                    "error": values["error"],
                    "iid_error": independent[method.name][i],
                    "shuffled_error": values["shuffled_error"],
                }
            )
    return errors


def _left(
    matrix: torch.Tensor,
    eigenvalues: NDArray[np.float64],
    methods: Sequence[Method],
    budgets: list[Budget],
    total: float,
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Relative error of every method; eigenvalues largest first."""
    low_rank = [method for method in methods if isinstance(method, LowRank)]
    others = [method for method in methods if not isinstance(method, LowRank)]
    retained = mean_retained_energies(matrix, others, budgets, rng)
    # The decomposition is known already.
    sums = np.cumsum(eigenvalues)[[budget.r - 1 for budget in budgets]]
    retained |= {method.name: sums for method in low_rank}
    return {name: 1 - energies / total for name, energies in retained.items()}


def _shuffled(increment: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """The same entries in random order, in their own place.

    NumPy draws the order whatever the device, so that a stored result is that of any device; a GPU
    would be faster by some seconds at 4096×4096, and need three times the memory.
    """
    entries = increment.cpu().contiguous().view(-1)
    rng.shuffle(entries.numpy())
    return increment.copy_(entries.view(increment.shape))


def _independent(method: Method, budgets: list[Budget], seed: int) -> list[float | None]:
    """Expected errors of independent normal entries; None where nobody knows without matrices."""
    p, q = budgets[0].p, budgets[0].q
    if isinstance(method, LowRank):
        return [*_independent_low_rank(method, p, q, tuple(b.r for b in budgets), seed)]
    if Engine.EXACT in method.engines(p, q):
        return [float(error) for error in method.expected_errors(budgets)]
    return [None] * len(budgets)


@lru_cache(maxsize=256)
def _independent_low_rank(
    method: LowRank, p: int, q: int, ranks: tuple[int, ...], seed: int
) -> list[float]:
    """The mean of a few draws of the bidiagonal model."""
    series = [Series(method, p, q, ranks, Sampler.REDUCED)]
    (estimates,) = MonteCarlo(_REFERENCE_DRAWS, seed).run(series, Runner(jobs=1))
    return [one.error for one in estimates]

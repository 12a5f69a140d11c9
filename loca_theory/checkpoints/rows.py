"""Rows of the tables of an analysis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Matrix:
    """Statistics of one increment; a statistic is None if it does not exist.

    Attributes:
        name: Name of the weight.
        shape: (p, q).
        dtype: Element type of the fine-tuned side, as it is stored.
        kind: ``query``, ``MLP in``, …, from the name; ``other`` if the name is not recognised.
        layer: Number of the layer, from the name.
        sigma: Standard deviation of the entries.
        mean: Mean of the entries.
        energy: Sum of the squared entries; None if it does not fit float64.
        zero_fraction: Proportion of entries that are exactly 0.
        excess_kurtosis: 0 for a normal law.
        tv: Total variation from a normal law, with the counting noise removed.
        tv_low: Lower end of its 95% confidence interval.
        tv_high: Upper end of that interval.
        tv_p_value: p-value of the hypothesis that ``tv`` is at most epsilon.
        tv_p_value_as_printed: p-value of the paper's test; None if its loop does not end.
        mp_sigma: σ of the Marchenko–Pastur law that fits the bulk; None without a bulk.
        mp_distance: Kolmogorov distance of the spectrum from that law.
        mp_wasserstein: Wasserstein distance of the spectrum from that law.
        outlier_mass: Fraction of the energy outside the law's support.
        spikes: Number of eigenvalues above the law's edge.
        T: The paper's spectral statistic.
        stable_rank: Energy in units of the largest eigenvalue.
        tail_exponent: Exponent of a power law for the largest eigenvalues.
        note: Remarks on this matrix, such as why a statistic is missing.
    """

    name: str
    shape: tuple[int, int]
    dtype: str
    kind: str
    layer: int | None
    sigma: float
    mean: float
    energy: float | None
    zero_fraction: float
    excess_kurtosis: float
    tv: float
    tv_low: float
    tv_high: float
    tv_p_value: float
    tv_p_value_as_printed: float | None
    mp_sigma: float | None
    mp_distance: float | None
    mp_wasserstein: float | None
    outlier_mass: float
    spikes: int
    T: float
    stable_rank: float
    tail_exponent: float | None
    note: str


@dataclass(frozen=True)
class MatrixError:
    """Error of one method on one increment.

    Attributes:
        name: Name of the weight.
        kind: Kind of the weight, as in :class:`Matrix`.
        layer: Number of its layer.
        energy: Energy of the increment; None if it does not fit float64.
        r: LoRA's rank, which sets the budget.
        method: Name of the method.
        error: Relative squared error.
        iid_error: Expected error for independent normal entries of that shape; None if it is known
            only by simulation.
        shuffled_error: Error on the same entries in random order, which removes their dependence
            but not their distribution.
        spectral_error: Expected error for the same singular values and random singular vectors; see
            :func:`~loca_theory.expressivity.spectral_error`. ``error`` less this value is what the
            method's basis is worth on this increment. None if only simulation can give it.
    """

    name: str
    kind: str
    layer: int | None
    energy: float | None
    r: int
    method: str
    error: float
    iid_error: float | None
    shuffled_error: float
    spectral_error: float | None


@dataclass(frozen=True)
class FigureData:
    """Values that a figure plots for one matrix.

    Attributes:
        name: Name of the weight.
        p: Number of rows.
        q: Number of columns.
        quantity: What the values are: ``entries``, fractions of the standardised entries in 128
            equal cells from −8 to 8; ``increment``, squared singular values of ΔW, smallest first;
            ``weights``, those of W′.
        values: The values. If entries lie beyond 2^±32, they are those of the matrix divided by a
            power of two.
        sigma: Standard deviation of the entries of ΔW.
        tv: Total variation of these entries from a normal law.
        excess_kurtosis: Excess kurtosis of these entries.
    """

    name: str
    p: int
    q: int
    quantity: str
    values: tuple[float, ...]
    sigma: float
    tv: float
    excess_kurtosis: float


@dataclass(frozen=True)
class Skipped:
    """A tensor that was left out.

    Attributes:
        name: Name in the base, or in the fine-tuned checkpoint if only that has the tensor.
        reason: Why it was left out.
        damaged: Whether the reason is a fault of the file rather than a property of the tensor.
    """

    name: str
    reason: str
    damaged: bool = False

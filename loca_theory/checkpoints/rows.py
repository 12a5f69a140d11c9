"""The rows of the tables of an analysis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Matrix:
    """What was found of one increment; None where there is no such number.

    Attributes:
        name: Name of the weight.
        shape: (p, q).
        dtype: Element type of the fine-tuned side, as it is stored.
        kind: ``query``, ``MLP in``, …, from the name; ``other`` where it says nothing.
        layer: Number of the layer, from the name.
        sigma: Standard deviation of the entries.
        mean: Their mean.
        energy: Sum of their squares; None where it does not fit float64.
        zero_fraction: Proportion of entries that are exactly 0.
        excess_kurtosis: 0 for a normal law.
        tv: Total variation from a normal law, counting noise taken out.
        tv_low: Lower end of its 95% interval.
        tv_high: Upper end.
        tv_p_value: Of the hypothesis that it is at most epsilon.
        tv_p_value_as_printed: Of the paper's test; None where its loop does not end.
        mp_sigma: σ of the Marchenko–Pastur law that fits the bulk; None without a bulk.
        mp_distance: Kolmogorov distance of the bulk from it.
        mp_wasserstein: Wasserstein distance.
        outlier_mass: Fraction of the energy outside the law's support.
        spikes: Eigenvalues above its edge.
        T: The paper's spectral statistic.
        stable_rank: Energy in units of the largest eigenvalue.
        tail_exponent: Of a power law for the largest eigenvalues.
        note: What a reader has to know about this matrix.
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
    """What a method leaves of one increment.

    Attributes:
        name: Name of the weight.
        kind: What it is.
        layer: Number of its layer.
        energy: Energy of the increment; None where it does not fit float64.
        r: LoRA's rank, which sets the budget.
        method: Which method.
        error: Relative squared error.
        iid_error: Its expectation for independent normal entries of that shape; None where it is
            not known without simulation.
        shuffled_error: Error on the same entries in random order: dependence gone, their
            distribution kept.
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


@dataclass(frozen=True)
class FigureData:
    """What the figures show of one matrix.

    Attributes:
        name: Its name.
        p: Rows.
        q: Columns.
        quantity: What the values are: ``entries``, fractions of the standardised entries in 128
            equal cells from −8 to 8; ``increment``, squared singular values of ΔW, smallest first;
            ``weights``, those of W′.
        values: The values; of entries beyond 2^±32 those of the matrix divided by a power of two.
        sigma: Standard deviation of the entries of ΔW.
        tv: Their total variation from a normal law.
        excess_kurtosis: Their excess kurtosis.
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
        name: Its name in the fine-tuned checkpoint (in the base, where it is missing there).
        reason: Why.
        damaged: Whether that is a fault of the file, not a property of the tensor.
    """

    name: str
    reason: str
    damaged: bool = False

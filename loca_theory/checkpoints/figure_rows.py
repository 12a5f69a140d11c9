"""Rows of the tables that figures of an analysis show."""

from __future__ import annotations

from dataclasses import dataclass

from loca_theory.checkpoints.rows import IncrementRow


@dataclass(frozen=True)
class EigenvalueHistogram(IncrementRow):
    """Histogram of the eigenvalues λ of ΔWᵀΔW, over one of two variables.

    If the spectrum has a Marchenko–Pastur bulk: λ/(max(p, q) σ²), σ = ``mp_sigma``, in cells from 0
    to 1.3 times the law's upper edge. Otherwise: log₁₀(λ/λ₁), λ₁ the largest eigenvalue, in cells
    up to 0.

    Attributes:
        is_logarithmic: Whether the variable is log₁₀(λ/λ₁).
        start: Lower end of the first of 40 equal cells.
        stop: Upper end of the last cell.
        below: Number of eigenvalues below ``start``: 0, or rounding errors.
        counts: Number of eigenvalues in each cell.
        above: Number of eigenvalues above ``stop``.
        leading: The largest of these, at most 12, largest first.
    """

    is_logarithmic: bool
    start: float
    stop: float
    below: int
    counts: tuple[int, ...]
    above: int
    leading: tuple[float, ...]


@dataclass(frozen=True)
class FigureData(IncrementRow):
    """Values that a figure plots for one matrix.

    Attributes:
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

    p: int
    q: int
    quantity: str
    values: tuple[float, ...]
    sigma: float
    tv: float
    excess_kurtosis: float

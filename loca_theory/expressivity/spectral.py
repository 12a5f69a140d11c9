r"""Expected errors on a matrix of which only the singular values are known.

The singular vectors are taken to be independent of the basis: W = U diag(s) Vᵀ with independent
uniformly random (Haar) orthogonal U and V. Low rank then retains the energy of the r largest
singular values, and a subspace of dimension m the fraction m/pq, both exactly. A selection depends
on the law of one coordinate. Let the atoms of the basis, which are p×q matrices of unit energy,
have singular values :math:`a_k`, and let ‖s‖² = pq. For large p and q a coordinate is distributed
like

.. math:: x = \frac1{\sqrt{pq}} \sum_k a_k \sum_i s_i\, g_{ik} h_{ik}, \qquad
          M(z) = E\,e^{zx} = \prod_{k,i} \bigl(1 - a_k^2 w_i z^2\bigr)^{-1/2}, \quad
          w_i = s_i^2/\|s\|^2 ,

with g and h standard normal. Entries and the atoms of the DCT have rank one; those of the real
Fourier basis have rank two, :math:`a_1 = a_2 = 1/\sqrt2`, except about 2(p + q) of them. The two
coordinates of a Fourier location have an isotropic law: given :math:`V = Σ w_i |η_i|^2`, with η
complex normal, they are independent N(0, V). Retaining the fraction f of the coordinates beyond c,
:math:`P(|x| > c) = f`, retains the energy :math:`E[x^2; |x| > c]`.

**Finite sizes.** The rows of U and V lie on spheres, so x is the above divided by
:math:`|g||h|/\sqrt{pq}`. To first order, this changes the retained energy by

.. math:: -δ\,c^3 f_{|x|}(c), \qquad
          δ = \tfrac12 \Bigl(\tfrac1p + \tfrac1q\Bigr) \sum_k a_k^4 ,

where :math:`f_{|x|}` is the density (for locations, half of this relative to their mean energy of
2). The remaining error was measured on random matrices of 24 to 256 rows, with budgets of 3% to 40%
of the coefficients: less than 0.15 (1/p + 1/q) at any spectrum, and less than 0.05 (1/p + 1/q) if
:math:`\sum w_i^2 \le 1/2`, that is, unless most of the energy lies in one direction.

**The normal limit.** If no singular value dominates, that is, if the stable rank
:math:`\|s\|^2/\max s_i^2` grows, x becomes normal, whatever the spectrum and the basis. A selection
of coefficients then retains the value of Theorem 1, f + 2zφ(z) with 2(1 − Φ(z)) = f, and low rank
retains more exactly if the energy fraction of the r largest singular values exceeds this number
(:func:`compare_with_low_rank`). The fourth cumulant of x gives the first correction,

.. math:: f + 2zφ(z) + z^3φ(z) \sum_k a_k^4 \Bigl(\sum_i w_i^2 - \frac1p - \frac1q\Bigr) ,

which is 0 for the spectrum of independent entries and, because :math:`z^3φ(z) < 0.463`, at most
0.463 over the stable rank: the limit is good to 1% from a stable rank of 50 on.

:mod:`~loca_theory.expressivity.laws.coordinate` integrates these laws.

Source: this package.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.coordinate import energy_beyond
from loca_theory.expressivity.methods.coordinates.selection import LocationSelection, Selection
from loca_theory.expressivity.methods.linear_families import LinearFamily
from loca_theory.expressivity.methods.low_rank import LowRank
from loca_theory.expressivity.methods.method import Method
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.increments.spectrum import checked_spectrum


def spectral_error(singular_values: ArrayLike, method: str | Method, budget: Budget) -> float:
    r"""Expected relative error on a matrix with given singular values and random singular vectors.

    The difference between a method's error on a matrix and this value is what the method's basis is
    worth on that matrix.

    Args:
        singular_values: All min(p, q) singular values s of the matrix, in any order and unit.
        method: LoRA, a linear family chosen without knowledge of W, such as random DCT and C3A, or
            a selection in a basis with known ``atom_singular_values``: LoCA, entries, Fourier or
            Fourier pairs.
        budget: The budget.

    Returns:
        :math:`E\,\|W-\hat W\|^2/\|W\|^2` over the singular vectors. It is exact for low rank and
        linear families; for selections the error is O(1/min(p, q)), with the constants given under
        *Finite sizes* in the derivation.

    Raises:
        InvalidArgumentError: the values are not the singular values of a nonzero matrix of the
            budget's shape, or the method has no such formula.

    >>> import numpy as np
    >>> from loca_theory.expressivity import Budget, exact_error
    >>> budget = Budget(256, 256, 8)
    >>> round(spectral_error(1 / np.arange(1, 257), "LoCA", budget), 3)
    0.697
    >>> noise = np.random.default_rng(0).standard_normal((256, 256))
    >>> round(spectral_error(np.linalg.svd(noise, compute_uv=False), "LoCA", budget), 3)
    0.8
    >>> round(exact_error("LoCA", budget), 3)  # for independent entries
    0.8
    """
    method = find_method(method)
    weights = _weights(singular_values, budget)
    if not has_spectral_error(method):
        raise InvalidArgumentError(
            f"{method.name} has no error that follows from the singular values alone; "
            "use low rank, a linear family or a selection, such as LoRA, LoCA or FourierFT"
        )
    if isinstance(method, LinearFamily):
        return float(method.expected_errors([budget])[0])
    if isinstance(method, Selection):
        return 1 - _selected(weights, method, budget)
    return float(1 - weights[: budget.r].sum())


def has_spectral_error(method: Method) -> bool:
    """Whether :func:`spectral_error` knows a method's error from the singular values alone."""
    # A subclass may choose its coordinates in another way, for which the formulas would be wrong.
    if isinstance(method, Selection):
        is_known = type(method) in (Selection, LocationSelection)
        return is_known and method.basis.atom_singular_values is not None
    return type(method) is LowRank or isinstance(method, LinearFamily)


@dataclass(frozen=True)
class LowRankComparison:
    """Energy fractions that low rank and another method retain, from the singular values alone.

    Attributes:
        method: Name of the other method.
        low_rank: Energy fraction of the r largest singular values, which low rank retains.
        other: Energy fraction that the other method retains: 1 less :func:`spectral_error`.
        normal_limit: The same for matrices of large stable rank, whatever the spectrum: for LoCA,
            entries and Fourier it is :func:`coefficient_fraction` of the fraction of the
            coefficients.
    """

    method: str
    low_rank: float
    other: float
    normal_limit: float

    @property
    def better(self) -> str:
        """``LoRA`` or the name of the other method, whichever retains more."""
        return "LoRA" if self.low_rank > self.other else self.method


def compare_with_low_rank(
    singular_values: ArrayLike, budget: Budget, method: str | Method = "LoCA"
) -> LowRankComparison:
    """Decide from the singular values alone whether low rank retains more than another method.

    Low rank retains more exactly if the energy fraction of the r largest singular values exceeds
    the fraction that the other method retains of a matrix with these singular values and random
    singular vectors. For LoCA and entries on large matrices of large stable rank, this is the
    number f + 2zφ(z) for every matrix, where the fraction f of the coefficients is retained.

    Args:
        singular_values: All min(p, q) singular values, in any order and unit.
        budget: The budget.
        method: The other method; the best DCT coefficients by default.

    Raises:
        InvalidArgumentError: as for :func:`spectral_error`.

    >>> import numpy as np
    >>> result = compare_with_low_rank(np.arange(1, 301) ** -0.5, Budget(300, 300, 8))
    >>> f"{result.low_rank:.3f} {result.other:.3f} {result.normal_limit:.3f} {result.better}"
    '0.433 0.190 0.178 LoRA'
    """
    method = find_method(method)
    return LowRankComparison(
        method.name,
        low_rank=float(_weights(singular_values, budget)[: budget.r].sum()),
        other=1 - spectral_error(singular_values, method, budget),
        normal_limit=1 - method.limit(budget),
    )


def _weights(singular_values: ArrayLike, budget: Budget) -> Array:
    """The energy fractions w of the singular values, largest first."""
    values, _ = checked_spectrum(singular_values, (budget.p, budget.q), "singular_values")
    squares = np.sort(values / values.max())[::-1] ** 2
    return squares / squares.sum()


def _selected(weights: Array, method: Selection, budget: Budget) -> float:
    """Energy fraction that a selection retains."""
    p, q = budget.p, budget.q
    atom = method.basis.atom_singular_values
    is_location = isinstance(method, LocationSelection)
    fraction = method.count(budget) * (2 if is_location else 1) / (p * q)
    if atom is None or not 0 < fraction < 1:
        return min(fraction, 1.0)
    energy, density = energy_beyond(weights[weights > 0].tobytes(), atom, is_location, fraction)
    on_spheres = (1 / p + 1 / q) / 2 * sum(a**4 for a in atom)
    # The largest coordinates hold at least their fraction of the energy.
    return float(np.clip(energy - on_spheres * density, fraction, 1))

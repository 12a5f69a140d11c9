r"""How much the largest coordinates can retain, whatever the basis: bounds without simulation.

A coordinate of :math:`W = U\,\mathrm{diag}(s)\,V^\top`, with independent uniformly random (Haar)
orthogonal U and V, along an atom of unit energy with singular values a_k is distributed like
:math:`\sum_{k,i} a_k s_i U_{ki} V_{ki}`. With :math:`w_i = s_i^2/\|s\|^2`, the fraction f of the
coordinates retains in expectation at most

.. math:: γ\,\Bigl[f + 2 z φ(z) + 2κ \sum_k a_k^4 \sum_i w_i^2\Bigr], \qquad 2(1 - Φ(z)) = f,

where :math:`κ = \max_c c^3φ(c) = 3\sqrt3\,φ(\sqrt3) = 0.4625…` and γ is 1 for atoms of rank one and
:math:`q/(q - k + 1/2)` for atoms of rank k, q the larger dimension. The bound holds for every
shape. The page "Any basis, and the law of one coordinate" proves it for atoms of rank one.

If the atoms differ, :math:`\sum_k a_k^4` is its mean over the basis and k the largest rank.

**Atoms of rank k.** Given U, the coordinate is x = ⟨M, Ξ⟩ with the k×q matrix
:math:`M_{li} = a_l s_i U_{li}` and the first k rows Ξ of V. A k×q normal matrix is G = TΞ, T lower
triangular and independent of Ξ (LQ), E T diagonal with the entries
:math:`E χ_q, …, E χ_{q-k+1}`. Divide the rows of M by them to get M̃. Then E[⟨M̃, G⟩ given Ξ] = x, so
E h(x) ≤ E h(⟨M̃, G⟩) for the convex h(x) = (x² − t)₊. Given U, ⟨M̃, G⟩ is normal with a variance of
at most γV', because :math:`(E χ_n)^2 \ge n - 1/2` (Watson 1959), where
:math:`V' = \|M\|^2/q = p \sum_l a_l^2 \sum_i w_i U_{li}^2` has the mean 1. For rows l ≠ m and
i ≠ j, :math:`E\,U_{li}^2 U_{mi}^2 = 1/(p(p + 2))` and
:math:`E\,U_{li}^2 U_{mj}^2 = (p + 1)/((p - 1)p(p + 2))`: the parts of V' that belong to different
rows are negatively correlated, and :math:`\mathrm{Var} V' \le 2 \sum_l a_l^4 \sum_i w_i^2`. The
page's inequality (1) for V', and the minimum over t, which γ scales, give the bound.

If W is a matrix of independent N(0, 1) plus a matrix of rank s in random directions with the energy
fraction π = τ/(1 + τ), the fraction f of the coordinates along atoms of rank one retains at most

.. math:: (1 - π)(1 + τ')\Bigl[f + 2 z φ(z) + 2κ π'^2 \sum_i w_i^2\Bigr], \qquad
          τ' = \frac{τ q}{q - 1/2}, \quad π' = \frac{τ'}{1 + τ'},

with the weights w of the matrix of rank s alone (:func:`spiked_selection_bound`), and low rank at
least what :func:`spiked_low_rank_bound` says, which the page "What agreement with Marchenko–Pastur
cannot show" proves.

Source: this package; G. N. Watson, "A note on gamma functions", 1959.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.increments.spectrum import checked_spectrum

KAPPA = 3 * sqrt(3) * exp(-1.5) / sqrt(2 * pi)
"""The largest value of c³φ(c), at c = √3."""


def selection_bound(
    weights: ArrayLike,
    budget: Budget,
    atom: Sequence[float] = (1.0,),
    *,
    fourth_powers: float | None = None,
    kappa: float = KAPPA,
) -> float:
    """The largest fraction of the energy that ⌊N₀/2⌋ coordinates of a basis retain on average.

    Returns:
        The bound, at most 1.
    """
    w = _normalised(weights)
    larger = max(budget.p, budget.q)
    factor = 1.0 if len(atom) == 1 else larger / (larger - len(atom) + 0.5)
    fourth = sum(a**4 for a in atom) if fourth_powers is None else fourth_powers
    return min(1.0, factor * (_normal(budget) + 2 * kappa * fourth * float(w @ w)))


def spiked_selection_bound(fraction: float, weights: ArrayLike, budget: Budget) -> float:
    r"""The same for independent normal entries plus spikes, and atoms of rank one.

    A coordinate is x = z₀ + y with independent :math:`z_0 \sim N(0, 1)` and y, the coordinate of
    the matrix P of the spikes. With the larger dimension q, as for P alone,
    :math:`y = \sqrt{τV} ξ`, where :math:`E V = 1`, :math:`\mathrm{Var} V \le 2 \sum w^2` and
    :math:`ξ = \sqrt q v_1`, v uniform on the sphere. For an independent :math:`χ^2_q`,
    :math:`Z = ξ \sqrt{χ^2_q/q}` is standard normal, so :math:`E[Z \mid ξ] = ξ\,E χ_q/\sqrt q`,
    where :math:`(E χ_q)^2 \ge q - 1/2`. As :math:`(x^2 - t)_+` is convex in y, Jensen's inequality
    gives

    .. math:: E(x^2 - t)_+ \le E\bigl((z_0 + \sqrt{τ'V}\,Z)^2 - t\bigr)_+ = E\,ψ(1 + τ'V)
              \le ψ(1 + τ') + κ τ'^2 \cdot 2 \sum w^2/(1 + τ') ,

    the last by the inequality (1) of the page "Any basis, and the law of one coordinate", which
    defines ψ. Add ft, take the minimum over t, which is (1 + τ')(f + 2zφ(z)) for the first part,
    and divide by 1 + τ = 1/(1 − π).

    Returns:
        The bound as a fraction of the mean energy of W.
    """
    w = _normalised(weights)
    larger = max(budget.p, budget.q)
    ratio = fraction / (1 - fraction) * larger / (larger - 0.5)
    inflated = ratio / (1 + ratio)
    bound = _normal(budget) + 2 * KAPPA * inflated**2 * float(w @ w)
    return bound * (1 + ratio) * (1 - fraction)


def spiked_low_rank_bound(fraction: float, spikes: int, budget: Budget) -> float:
    """The least fraction of the mean energy that rank r retains of a matrix with s ≤ r spikes."""
    p, q, r = budget.p, budget.q, budget.r
    if not 1 <= spikes <= r:
        raise InvalidArgumentError(
            f"the number of spikes must lie between 1 and r = {r}, not {spikes}"
        )
    bulk_rank = r - spikes
    bulk = float(expected_leading_energy(p - spikes, q, bulk_rank)[bulk_rank]) if bulk_rank else 0.0
    return fraction + (1 - fraction) * (spikes * q + bulk) / (p * q)


def sign_energy_bound(gradient: ArrayLike, r: int) -> float:
    r"""The least energy fraction in r directions of the signs of a matrix, Adam's first update.

    With the flatness ω = (Σ|G_ij|)²/(pq ‖G‖²) and the fraction τ of the energy of G beyond its best
    rank-r approximation, the fraction is at least :math:`(\sqrtω - \sqrtτ)^2/(1 - τ)` if ω ≥ τ.

    Returns:
        The bound; 0 if ω < τ.
    """
    g = np.asarray(gradient, dtype=np.float64)
    energies = np.square(np.linalg.svd(g, compute_uv=False))
    flatness = np.square(np.abs(g).sum()) / (g.size * energies.sum())
    beyond = energies[r:].sum() / energies.sum()
    return float(max(sqrt(flatness) - sqrt(beyond), 0.0) ** 2 / (1 - beyond))


def _normal(budget: Budget) -> float:
    count = budget.numbers // 2
    return coefficient_fraction(count / (budget.p * budget.q))


def _normalised(weights: ArrayLike) -> np.ndarray:
    energies, _ = checked_spectrum(weights, argument="weights")
    return energies / energies.sum()

r"""How far the first step of Adam moves a weight, for adapters as they are initialised.

The step moves every trained number :math:`\theta_k` by the learning rate η against the sign of its
gradient. Let the gradient G of the weight have independent N(0, 1) entries, and let
:math:`A_k = \partial W/\partial\theta_k` be the atoms of the numbers that have a gradient. Then

.. math:: E\lVert\Delta W_1\rVert_F^2 = \eta^2 \sum_{k,l} E[s_k s_l]\,\langle A_k, A_l\rangle,
          \qquad E[s_k s_l] = \tfrac2\pi \arcsin\frac{\langle A_k, A_l\rangle}
                                                     {\lVert A_k\rVert\,\lVert A_l\rVert},

with the signs :math:`s_k` of :math:`\langle G, A_k\rangle`, and the first-order decrease is
:math:`\eta\sqrt{2/\pi}\,\sum_k E\lVert A_k\rVert`. Of a product whose one factor starts at 0, only
that factor has a gradient, and the atoms are made of the other one's initial values.

For the mean of a norm, :math:`E\sqrt X = \sqrt{m}\,(1 - v/8)` for X of mean m and relative variance
v; what is left out is of order v², and for :math:`\arcsin ρ = ρ` of order ρ³.
:func:`loca_theory.adapters.first_step` measures the step of any adapter on PEFT's own layer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_ABSOLUTE = math.sqrt(2 / math.pi)  # the mean of |N(0, 1)|
LORA_SCALING = 2.0  # α/r in the steps of methods


class StepSize(NamedTuple):
    """A first step in units of the learning rate η.

    Attributes:
        frobenius: Root of the mean of ‖ΔW₁‖²_F, divided by η.
        decrease: Mean of ⟨−G, ΔW₁⟩, divided by η.
    """

    frobenius: float
    decrease: float


def of_orthogonal_atoms(count: float, norm: float) -> StepSize:
    """Atoms of one norm that are orthogonal to each other: ‖ΔW₁‖ = η·norm·√count, exactly."""
    return StepSize(norm * math.sqrt(count), _ABSOLUTE * count * norm)


def of_low_rank(p: int, q: int, r: int, scaling: float) -> StepSize:
    r"""LoRA: ΔW = sBA with B = 0 and entries of A uniform with variance 1/(3q).

    The atoms of B are :math:`s\,e_i a_j^\top`. For rows of A, E‖a‖² = 1/3 with the relative
    variance 4/(5q), and ⟨a_j, a_k⟩ has the variance 1/(9q), so that
    :math:`E\lVert\Delta W_1\rVert_F^2 = \eta^2 s^2 p\,\tfrac r3\,[1 + \tfrac2\pi (r - 1)/q]`.
    """
    square = p * r / 3 * (1 + 2 / math.pi * (r - 1) / q)
    norms = p * r * math.sqrt(1 / 3) * (1 - 1 / (10 * q))
    return StepSize(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)


def of_random_cosines(p: int, q: int, count: int, scaling: float) -> StepSize:
    r"""FourierFT: waves :math:`s\cos(2\pi(kx/p + ly/q))/(pq)` at distinct random frequencies.

    A wave has the squared norm s²/(2pq), or twice that if its frequency is its own mirror image,
    which m of all pq are. Two frequencies that are mirror images have the same wave.
    """
    m, total = (2 - p % 2) * (2 - q % 2), p * q
    self_conjugate = count * m / total
    mirrored = (total - m) / total * count * (count - 1) / (total - 1)
    square = (count + self_conjugate + mirrored) / (2 * total)
    norms = (count - self_conjugate) / math.sqrt(2 * total) + self_conjugate / math.sqrt(total)
    return StepSize(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)


def of_frozen_factors(p: int, q: int, rank: int, diagonal: float) -> StepSize:
    r"""VeRA: ΔW = Λ_b B Λ_d A with Λ_b = 0, Λ_d = d I, and B, A uniform with variances 2/s, 2/q.

    The atom of an output i is :math:`e_i\,d\,b_i^\top A`, of mean squared norm 4d². Its relative
    variance, of the norm of b_i, 4/(5s), of those of the rows of A, 1.44/(sq), and of the products
    of rows, 2(s − 1)/(sq), is v.
    """
    v = 0.8 / rank + 1.44 / (rank * q) + 2 * (rank - 1) / (rank * q)
    norm = 2 * diagonal
    return StepSize(norm * math.sqrt(p), _ABSOLUTE * p * norm * (1 - v / 8))


def of_hadamard_product(p: int, q: int, r: int, scaling: float) -> StepSize:
    r"""LoHa: ΔW = s (A₁B₁) ∘ (A₂B₂) with B₂ = 0; entries of A uniform, variance 1/(3r), B₁ 1/(3q).

    With M = A₁B₁, of entries of mean square 1/(9q), the atoms of B₂ are columns M_j ∘ a_k. So
    :math:`E\lVert\Delta W_1\rVert_F^2 = \eta^2 s^2\,\tfrac p{27}\,[1 + \tfrac6\pi (r - 1)/p]`. The
    relative variance of a squared norm, of column j of B₁, 4/(5r), and of the p terms, 4.4/p, is v.
    """
    square = p / 27 * (1 + 6 / math.pi * (r - 1) / p)
    v = 0.8 / r + 4.4 / p
    norms = r * q * math.sqrt(p / (27 * q * r)) * (1 - v / 8)
    return StepSize(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)

r"""The first step of Adam in closed form, for adapters at their initialisation.

Let G, the gradient of the weight, have independent N(0, 1) entries, and let
:math:`A_k = \partial W/\partial\theta_k` be the atoms of the numbers that have a gradient. Then

.. math:: E\lVert\Delta W_1\rVert_F^2 = \eta^2 \sum_{k,l} E[s_k s_l]\,\langle A_k, A_l\rangle,
          \qquad E[s_k s_l] = \tfrac2\pi \arcsin\frac{\langle A_k, A_l\rangle}
                                                     {\lVert A_k\rVert\,\lVert A_l\rVert},

with the signs :math:`s_k` of :math:`\langle G, A_k\rangle`, and the first-order decrease is
:math:`\eta\sqrt{2/\pi}\,\sum_k E\lVert A_k\rVert`. Of a product whose one factor starts at 0, only
that factor has a gradient, and the atoms are made of the other one's initial values.

For the mean of a norm, :math:`E\sqrt X = \sqrt{m}\,(1 - v/8)` for X of mean m and relative variance
v; what is left out is of order v², and for :math:`\arcsin ρ = ρ` of order ρ³.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

_ABSOLUTE = math.sqrt(2 / math.pi)  # the mean of |N(0, 1)|


class ClosedForm(NamedTuple):
    """A first step in units of the learning rate.

    Attributes:
        frobenius: Root of the mean of ‖ΔW₁‖²_F, divided by η.
        decrease: Mean of ⟨−G, ΔW₁⟩, divided by η.
    """

    frobenius: float
    decrease: float


def closed_form(config: Any, shape: tuple[int, int]) -> ClosedForm | None:
    """The first step of an adapter of a p×q weight; None if there is no formula for it.

    There are formulas for LoRA, rsLoRA, LoCA with fixed locations, FourierFT, WaveFT, SHiRA, VeRA,
    C3A and LoHa as they are initialised by default, up to terms of relative order 1/q².

    Args:
        config: A configuration of PEFT.
        shape: (p, q).
    """
    name = getattr(config, "peft_type", None)
    form = _FORMS.get(str(getattr(name, "value", name)))
    return None if form is None else form(config, *shape)


def _orthogonal(count: float, norm: float) -> ClosedForm:
    """Atoms of one norm that are orthogonal to each other."""
    return ClosedForm(norm * math.sqrt(count), _ABSOLUTE * count * norm)


def _lora(config: Any, p: int, q: int) -> ClosedForm | None:
    r"""ΔW = sBA with B = 0 and entries of A uniform with variance 1/(3q).

    The atoms of B are :math:`s\,e_i a_j^\top`. For rows of A, E‖a‖² = 1/3 with the relative
    variance 4/(5q), and ⟨a_j, a_k⟩ has the variance 1/(9q), so that
    :math:`E\lVert\Delta W_1\rVert_F^2 = \eta^2 s^2 p\,\tfrac r3\,[1 + \tfrac2\pi (r - 1)/q]`.
    """
    variants = ("use_dora", "kasa_config", "use_bdlora", "velora_config")
    if config.init_lora_weights is not True or any(getattr(config, one, None) for one in variants):
        return None
    r = config.r
    scaling = config.lora_alpha / (math.sqrt(r) if config.use_rslora else r)
    square = p * r / 3 * (1 + 2 / math.pi * (r - 1) / q)
    norms = p * r * math.sqrt(1 / 3) * (1 - 1 / (10 * q))
    return ClosedForm(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)


def _loca(config: Any, p: int, q: int) -> ClosedForm | None:
    """B orthonormal cosines times α: ‖ΔW₁‖ = ηα√B, exactly."""
    del p, q
    if config.alternating_steps != 0:
        return None
    return _orthogonal(config.n_frequency, config.scaling)


def _fourier(config: Any, p: int, q: int) -> ClosedForm:
    r"""N waves :math:`s\cos(2\pi(kx/p + ly/q))/(pq)` at distinct random frequencies.

    A wave has the squared norm s²/(2pq), or twice that if its frequency is its own mirror image,
    which m of all pq are. Two frequencies that are mirror images have the same wave.
    """
    n, m, total = config.n_frequency, (2 - p % 2) * (2 - q % 2), p * q
    own = n * m / total
    mirrored = (total - m) / total * n * (n - 1) / (total - 1)
    square = (n + own + mirrored) / (2 * total)
    norms = (n - own) / math.sqrt(2 * total) + own / math.sqrt(total)
    scaling = config.scaling
    return ClosedForm(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)


def _wavelet(config: Any, p: int, q: int) -> ClosedForm | None:
    """N orthonormal Haar wavelets times the scaling, for even sides."""
    if config.wavelet_family != "db1" or p % 2 or q % 2:
        return None
    return _orthogonal(config.n_frequency, config.scaling)


def _entries(config: Any, p: int, q: int) -> ClosedForm:
    """r(p + q) entries of the weight."""
    return _orthogonal(config.r * (p + q), 1.0)


def _vera(config: Any, p: int, q: int) -> ClosedForm:
    r"""ΔW = Λ_b B Λ_d A with Λ_b = 0, Λ_d = d I, and B, A uniform with variances 2/r, 2/q.

    The atom of an output i is :math:`e_i\,d\,b_i^\top A`, of mean squared norm 4d². Its relative
    variance, of the norm of b_i, 4/(5r), of those of the rows of A, 1.44/(rq), and of the products
    of rows, 2(r − 1)/(rq), is v.
    """
    r, d = config.r, config.d_initial
    v = 0.8 / r + 1.44 / (r * q) + 2 * (r - 1) / (r * q)
    return ClosedForm(2 * d * math.sqrt(p), _ABSOLUTE * p * 2 * d * (1 - v / 8))


def _circulant(config: Any, p: int, q: int) -> ClosedForm | None:
    """Circulant blocks of side b: each of pq/b numbers is 1/q in b entries of the weight."""
    b = config.block_size
    if config.block_size_pattern:
        return None
    return _orthogonal(p * q / b, math.sqrt(b) / q)


def _hadamard(config: Any, p: int, q: int) -> ClosedForm | None:
    r"""ΔW = s (A₁B₁) ∘ (A₂B₂) with B₂ = 0; entries of A uniform, variance 1/(3r), B₁ 1/(3q).

    With M = A₁B₁, of entries of mean square 1/(9q), the atoms of B₂ are columns M_j ∘ a_k. So
    :math:`E\lVert\Delta W_1\rVert_F^2 = \eta^2 s^2\,\tfrac p{27}\,[1 + \tfrac6\pi (r - 1)/p]`. The
    relative variance of a squared norm, of column j of B₁, 4/(5r), and of the p terms, 4.4/p, is v.
    """
    if not config.init_weights:
        return None
    r, scaling = config.r, config.alpha / config.r
    square = p / 27 * (1 + 6 / math.pi * (r - 1) / p)
    v = 0.8 / r + 4.4 / p
    norms = r * q * math.sqrt(p / (27 * q * r)) * (1 - v / 8)
    return ClosedForm(scaling * math.sqrt(square), _ABSOLUTE * scaling * norms)


_FORMS: dict[str, Callable[[Any, int, int], ClosedForm | None]] = {
    "LORA": _lora,
    "LOCA": _loca,
    "FOURIERFT": _fourier,
    "WAVEFT": _wavelet,
    "SHIRA": _entries,
    "VERA": _vera,
    "C3A": _circulant,
    "LOHA": _hadamard,
}

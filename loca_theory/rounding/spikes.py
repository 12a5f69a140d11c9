r"""Which singular values of a change still show after rounding.

With :math:`c = \mathbb E\,dΔ/σ^2`, the rounded change is d = cΔ + noise, and the noise has
uncorrelated entries of variance v. In a p×q matrix of such noise, a singular value θ of Δ shows if

.. math:: cθ > (pq)^{1/4}\sqrt v,

and then is found near :math:`\sqrt{(c^2θ^2 + pv)(c^2θ^2 + qv)}/(cθ)`. All others end at the edge
:math:`\sqrt v\,(\sqrt p + \sqrt q)`. The entries of Δ are taken to be nearly normal, as those of
many terms of similar size.

Source: F. Benaych-Georges and R. R. Nadakuditi, J. Multivariate Anal. 111 (2012), section 3.1.
"""

from __future__ import annotations

import math

from loca_theory.rounding.laws import RoundedChange


def visible_from(
    law: RoundedChange, change: float, shape: tuple[int, int], *, independent: float = 0.0
) -> float:
    """The smallest singular value of Δ that shows among the singular values of d.

    Args:
        law: What the format leaves of the change.
        change: σ, the standard deviation of its entries.
        shape: p and q.
        independent: Fraction of σ² that is due to independent entries of Δ; 0 for low rank.

    Returns:
        :math:`(pq)^{1/4}\\sqrt v/c`; infinite if no number changes.
    """
    if not law.slope:
        return math.inf
    variance = _variance(law, change, independent)
    return (shape[0] * shape[1]) ** 0.25 * math.sqrt(variance) / law.slope


def rounded_singular_value(
    value: float,
    law: RoundedChange,
    change: float,
    shape: tuple[int, int],
    *,
    independent: float = 0.0,
) -> float:
    """Where a singular value θ of Δ is found in d, in the limit of large matrices.

    Args:
        value: θ.
        law: What the format leaves of the change.
        change: σ, the standard deviation of its entries.
        shape: p and q.
        independent: As for :func:`visible_from`.

    Returns:
        The singular value of d, or the edge of the noise where θ does not show.
    """
    p, q = shape
    variance = _variance(law, change, independent)
    if value <= visible_from(law, change, shape, independent=independent):
        return math.sqrt(variance) * (math.sqrt(p) + math.sqrt(q))
    square = (law.slope * value) ** 2
    return math.sqrt((square + p * variance) * (square + q * variance) / square)


def _variance(law: RoundedChange, change: float, independent: float) -> float:
    """Variance of the entries of d that have nothing to do with the singular values."""
    return (law.noise + independent * law.slope**2) * change**2

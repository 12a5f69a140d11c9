r"""Moving components across the whole spectrum, by what the loss would gain.

To second order and one component at a time, a loss with gradient Z and curvature h at a place
falls by

.. math:: \text{gain} = Z^2 / (2h) \quad\text{at best, by a new component there, and rises by}\quad
          \text{loss} = a^2 h / 2

when a component whose own gradient vanishes is removed. Both in units of the loss, so that they
can be compared; where the curvature is unknown, h = 1 ranks by :math:`|Z|` and :math:`|a|`, which
are not comparable with each other.

Everything acts on the last dimension and takes any leading ones: a place is the number
:math:`l^1 q + l^2` of an entry of the p×q spectrum, and all components have places of their own.
"""

from __future__ import annotations

import torch


def gains(z: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice the best gain at every place, :math:`Z^2/h`, or :math:`Z^2` without a curvature.

    Args:
        z: Z, (..., p·q).
        curvature: h of the same shape, not negative; None if unknown. A place without curvature,
            which the loss does not depend on, gains nothing.
    """
    if curvature is None:
        return z.square()
    return torch.where(curvature > 0, z.square() / curvature.clamp(min=_tiny(z)), 0)


def losses(
    coefficients: torch.Tensor, places: torch.Tensor, curvature: torch.Tensor | None
) -> torch.Tensor:
    """Twice what removing each component costs, :math:`a^2 h`, or :math:`a^2`.

    Args:
        coefficients: a, (..., B).
        places: (..., B).
        curvature: h, (..., p·q), or None.
    """
    squared = coefficients.square()
    return squared if curvature is None else squared * curvature.gather(-1, places)


def swap(
    coefficients: torch.Tensor,
    places: torch.Tensor,
    z: torch.Tensor,
    curvature: torch.Tensor | None,
    count: int,
) -> torch.Tensor:
    """Move the components that matter least to the free places that promise most.

    The k-th least loss is paired with the k-th largest gain, for k up to ``count``. With a
    curvature, a pair is exchanged only if the gain is the larger one; without it, always, as in
    dynamic sparse training.

    Args:
        coefficients: a, (..., B).
        places: (..., B), distinct in each row.
        z: Z, (..., p·q).
        curvature: h, (..., p·q), or None.
        count: The most components to move, at most B.

    Returns:
        The new places. A component whose place has changed is to start there from zero.

    Source: Evci et al., "Rigging the lottery", 2020, for the rule without curvature; the saliency
    a²h/2 is that of optimal brain damage (LeCun et al., 1989).
    """
    count = min(count, z.shape[-1] - places.shape[-1])
    if count <= 0:
        return places
    promise = gains(z, curvature).scatter(-1, places, -1.0)
    gain, target = promise.topk(count)
    loss, which = losses(coefficients, places, curvature).topk(count, largest=False)
    if curvature is not None:
        target = torch.where(gain > loss, target, places.gather(-1, which))
    return places.scatter(-1, which, target)


def reselect(
    places: torch.Tensor, component: int, z: torch.Tensor, curvature: torch.Tensor | None
) -> torch.Tensor:
    """Give a component that was left out of ΔW for one gradient the best place by that gradient.

    Args:
        places: (..., B), distinct in each row.
        component: Which component was left out.
        z: Z without it, (..., p·q).
        curvature: h, (..., p·q), or None.

    Returns:
        The new places; perhaps the old ones.

    Source: Sturm and Christensen, "Cyclic matching pursuits with multiscale time-frequency
    dictionaries", 2010.
    """
    own = places[..., component : component + 1]
    promise = gains(z, curvature)
    promise = promise.scatter(-1, places, -1.0).scatter(-1, own, promise.gather(-1, own))
    places = places.clone()
    places[..., component] = promise.argmax(-1)
    return places


def _tiny(z: torch.Tensor) -> float:
    return torch.finfo(z.dtype).tiny

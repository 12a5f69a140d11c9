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

import math

import torch

# The share of the components that a swap moves at most, and that a reselection leaves out at first.
# Chosen by hand on the toy experiment.
_SWAPPED, _RESELECTED = 0.2, 0.4
# From a vector longer than this every so many values are looked at first, on the CPU; the threshold
# is set so that by that sample a fifth more lie above it than are wanted, and a few.
_LONG, _SAMPLED, _MARGIN, _SPARE = 2**20, 61, 1.2, 30


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


def losses(coefficients: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice what removing each component costs, :math:`a^2 h`, or :math:`a^2`.

    Args:
        coefficients: a, (..., B).
        curvature: h at their places, (..., B), or None.
    """
    squared = coefficients.square()
    return squared if curvature is None else squared * curvature


def swap(
    coefficients: torch.Tensor,
    places: torch.Tensor,
    gain: torch.Tensor,
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
        gain: :func:`gains` of every place, (..., p·q).
        curvature: h at their places, (..., B), or None.
        count: The most components to move, at most B.

    Returns:
        The new places. A component whose place has changed is to start there from zero.

    Source: Evci et al., "Rigging the lottery", 2020, for the rule without curvature; the saliency
    a²h/2 is that of optimal brain damage (LeCun et al., 1989).
    """
    count = min(count, gain.shape[-1] - places.shape[-1])
    if count <= 0:
        return places
    free = gain.scatter(-1, places, -1.0)
    target = largest(free, count)
    loss, which = losses(coefficients, curvature).topk(count, largest=False)
    if curvature is not None:
        pays = free.gather(-1, target) > loss
        target = torch.where(pays, target, places.gather(-1, which))
    return places.scatter(-1, which, target)


def most_swaps(components: int, progress: float, *, weighs: bool) -> int:
    """How many components a swap moves at most: a fifth of all.

    Without a curvature, which would say when to stop, ever fewer of them.

    Args:
        components: B.
        progress: How much of the time for moves is over, in [0, 1].
        weighs: Whether by gain and loss.
    """
    return fading(_SWAPPED, components, 0.0 if weighs else progress)


def left_out(coefficients: torch.Tensor, progress: float, turn: int) -> torch.Tensor:
    """Which components to leave out of ΔW for the gradient that :func:`reselect` goes by.

    Those of least :math:`|a|`, two fifths of all at first and fewer as a cosine falls;
    once it is one alone, in every other turn each component in its turn instead.

    Args:
        coefficients: a, (..., B).
        progress: How much of the time for moves is over, in [0, 1].
        turn: The number of the reselection.

    Returns:
        Indices (..., k).
    """
    components = coefficients.shape[-1]
    count = fading(_RESELECTED, components, progress)
    if count == 1 and turn % 2:
        size = (*coefficients.shape[:-1], 1)
        return torch.full(size, turn // 2 % components, device=coefficients.device)
    return coefficients.abs().topk(count, largest=False).indices


def reselect(places: torch.Tensor, vacated: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
    """Give components that were left out of ΔW for one gradient the best places by that gradient.

    Those of the best places that one of them had before go back to it. So a component moves only
    if, by the same gradient, another place is better than its own; only the ratios of the
    curvature matter.

    Args:
        places: (..., B), distinct in each row.
        vacated: Which components were left out, (..., k).
        gain: :func:`gains` of every place without them, (..., p·q).

    Returns:
        The new places.

    Source: Sturm and Christensen, "Cyclic matching pursuits with multiscale time-frequency
    dictionaries", 2010, where k = 1.
    """
    own = places.gather(-1, vacated)
    # The own place wins a tie.
    here = torch.nextafter(gain.gather(-1, own), gain.new_full((), math.inf))
    promise = gain.scatter(-1, places, -1.0).scatter(-1, own, here)
    best = largest(promise, vacated.shape[-1])
    is_best = _marked(promise, best).gather(-1, own)
    is_own = _marked(promise, own).gather(-1, best)
    # Those who must leave are as many as the places that are new: line both up.
    order = is_best.int().sort(dim=-1, stable=True).indices
    fresh = best.gather(-1, is_own.int().sort(dim=-1, stable=True).indices)
    settled = torch.where(is_best.gather(-1, order), own.gather(-1, order), fresh)
    return places.scatter(-1, vacated.gather(-1, order), settled)


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """The indices of the largest values along the last dimension, largest first: (..., count).

    Of a long vector, a sample tells the threshold above which to look. Not on a GPU, where that
    would wait for the device twice to save a search that is fast there.
    """
    if values.device.type == "cpu" and values.ndim == 1 and values.shape[0] > _LONG:
        sample = values[::_SAMPLED]
        likely = min(int(_MARGIN * count / _SAMPLED) + _SPARE, sample.shape[0])
        above = (values > sample.topk(likely).values[-1]).nonzero()[:, 0]
        if above.shape[0] >= count:
            return above[values[above].topk(count).indices]
    return values.topk(count).indices


def fading(first: float, components: int, progress: float) -> int:
    """How many components to move: a share at first, one at the end, as a cosine in between.

    Args:
        first: The share at first.
        components: B.
        progress: How much of the time is over, in [0, 1].
    """
    return max(1, round(first * components * (1 + math.cos(math.pi * progress)) / 2))


def _marked(like: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like, dtype=torch.bool).scatter(-1, places, value=True)


def _tiny(z: torch.Tensor) -> float:
    return torch.finfo(z.dtype).tiny

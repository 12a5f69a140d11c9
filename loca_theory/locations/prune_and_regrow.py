r"""Moving components across the whole spectrum, by what the loss would gain.

To second order and one component at a time, a loss with gradient Z and curvature h at a location
falls by

.. math:: \text{gain} = Z^2 / (2h) \quad\text{at best, by a new component there, and rises by}\quad
          \text{loss} = a^2 h / 2

when a component whose own gradient vanishes is removed. Both in units of the loss, so that they
can be compared; where the curvature is unknown, h = 1 ranks by :math:`|Z|` and :math:`|a|`, which
are not comparable with each other.

Everything acts on the last dimension and takes any leading ones: a location is the number
:math:`l^1 q + l^2` of an entry of the p×q spectrum, and all components have locations of their own.
"""

from __future__ import annotations

import math

import torch

# The fraction of the components that a swap moves at most, and that a reselection leaves out at
# first. Chosen by hand on the toy experiment.
_SWAPPED, _RESELECTED = 0.2, 0.4
# From a vector longer than this every so many values are looked at first, on the CPU; the threshold
# is set so that by that sample a fifth more lie above it than are wanted, and a few.
_LONG, _SAMPLED, _MARGIN, _SPARE = 2**20, 61, 1.2, 30


def predicted_decreases(z: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice the best gain at every location, :math:`Z^2/h`, or :math:`Z^2` without a curvature.

    Args:
        z: Z, (..., p·q).
        curvature: h of the same shape, not negative; None if unknown. A location without curvature,
            which the loss does not depend on, gains nothing.
    """
    if curvature is None:
        return z.square()
    return torch.where(curvature > 0, z.square() / curvature.clamp(min=_tiny(z)), 0)


def saliencies(coefficients: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice what removing each component costs, :math:`a^2 h`, or :math:`a^2`.

    Args:
        coefficients: a, (..., B).
        curvature: h at their locations, (..., B), or None.
    """
    squared = coefficients.square()
    return squared if curvature is None else squared * curvature


def swap(
    coefficients: torch.Tensor,
    indices: torch.Tensor,
    predicted_decrease: torch.Tensor,
    curvature: torch.Tensor | None,
    count: int,
) -> torch.Tensor:
    """Move the components that matter least to the free locations that promise most.

    The k-th least loss is paired with the k-th largest gain, for k up to ``count``. With a
    curvature, a pair is exchanged only if the gain is the larger one; without it, always, as in
    dynamic sparse training.

    Args:
        coefficients: a, (..., B).
        indices: (..., B), distinct in each row.
        predicted_decrease: :func:`predicted_decreases` of every location, (..., p·q).
        curvature: h at their locations, (..., B), or None.
        count: The most components to move, at most B.

    Returns:
        The new locations. A component whose location has changed is to start there from zero.

    Source: Evci et al., "Rigging the lottery", 2020, for the rule without curvature; the saliency
    a²h/2 is that of optimal brain damage (LeCun et al., 1989).
    """
    count = min(count, predicted_decrease.shape[-1] - indices.shape[-1])
    if count <= 0:
        return indices
    free = predicted_decrease.scatter(-1, indices, -1.0)
    target = largest(free, count)
    loss, which = saliencies(coefficients, curvature).topk(count, largest=False)
    if curvature is not None:
        pays = free.gather(-1, target) > loss
        target = torch.where(pays, target, indices.gather(-1, which))
    return indices.scatter(-1, which, target)


def most_swaps(components: int, progress: float, *, use_curvature: bool) -> int:
    """How many components a swap moves at most: a fifth of all.

    Without a curvature, which would say when to stop, ever fewer of them.

    Args:
        components: B.
        progress: How much of the time for moves is over, in [0, 1].
        use_curvature: Whether by gain and loss.
    """
    return fading(_SWAPPED, components, 0.0 if use_curvature else progress)


def dropped(coefficients: torch.Tensor, progress: float, turn: int) -> torch.Tensor:
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


def reselect(
    indices: torch.Tensor, dropped: torch.Tensor, predicted_decrease: torch.Tensor
) -> torch.Tensor:
    """Give dropped components the best locations by the gradient that was taken without them.

    Those of the best locations that one of them had before go back to it. So a component moves only
    if, by the same gradient, another location is better than its own; only the ratios of the
    curvature matter.

    Args:
        indices: (..., B), distinct in each row.
        dropped: Which components were left out, (..., k).
        predicted_decrease: :func:`predicted_decreases` of every location without them, (..., p·q).

    Returns:
        The new locations.

    Source: Sturm and Christensen, "Cyclic matching pursuits with multiscale time-frequency
    dictionaries", 2010, where k = 1.
    """
    own = indices.gather(-1, dropped)
    # The own location wins a tie.
    here = torch.nextafter(
        predicted_decrease.gather(-1, own), predicted_decrease.new_full((), math.inf)
    )
    promise = predicted_decrease.scatter(-1, indices, -1.0).scatter(-1, own, here)
    best = largest(promise, dropped.shape[-1])
    is_best = _marked(promise, best).gather(-1, own)
    is_own = _marked(promise, own).gather(-1, best)
    # Those who must leave are as many as the locations that are new: line both up.
    order = is_best.int().sort(dim=-1, stable=True).indices
    fresh = best.gather(-1, is_own.int().sort(dim=-1, stable=True).indices)
    found_anew = torch.where(is_best.gather(-1, order), own.gather(-1, order), fresh)
    return indices.scatter(-1, dropped.gather(-1, order), found_anew)


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
    """How many components to move: a fraction at first, one at the end, as a cosine in between.

    Args:
        first: The fraction at first.
        components: B.
        progress: How much of the time is over, in [0, 1].
    """
    return max(1, round(first * components * (1 + math.cos(math.pi * progress)) / 2))


def _marked(like: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like, dtype=torch.bool).scatter(-1, indices, value=True)


def _tiny(z: torch.Tensor) -> float:
    return torch.finfo(z.dtype).tiny

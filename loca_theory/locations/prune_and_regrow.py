r"""Moves of components across the whole spectrum, by the predicted change of the loss.

Take one component at a time, and the loss to second order, with gradient Z and curvature h at a
location. A new component there decreases the loss by at most the *predicted decrease*, and the
removal of a component with vanishing gradient increases it by the *saliency*:

.. math:: \text{predicted decrease} = Z^2 / (2h), \qquad \text{saliency} = a^2 h / 2 .

Both are in units of the loss and can be compared. If the curvature is unknown, h = 1 ranks
locations by :math:`|Z|` and components by :math:`|a|`, which are not comparable with each other.

All functions act on the last dimension and accept any leading ones. A location is the flat index
:math:`l^1 q + l^2` of an entry of the p×q spectrum, and no two components share a location.
"""

from __future__ import annotations

import math

import torch

# The largest fraction of the components that a swap moves, and the fraction that the first
# reselection drops. Chosen by hand on the toy experiment.
_SWAPPED, _RESELECTED = 0.2, 0.4
# On the CPU, a vector longer than _LONG is first sampled at every _SAMPLED-th value. The threshold
# is the k-th largest value of the sample, where k is _MARGIN times the number of wanted values that
# the sample is expected to contain, plus _SPARE.
_LONG, _SAMPLED, _MARGIN, _SPARE = 2**20, 61, 1.2, 30


def predicted_decreases(z: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice the predicted decreases, :math:`Z^2/h`, or :math:`Z^2` without a curvature.

    Args:
        z: Z, (..., p·q).
        curvature: h of the same shape, not negative; None if unknown. Where h = 0, the loss does
            not depend on the location, and the predicted decrease is 0.
    """
    if curvature is None:
        return z.square()
    return torch.where(curvature > 0, z.square() / curvature.clamp(min=_tiny(z)), 0)


def saliencies(coefficients: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Twice the saliencies, :math:`a^2 h`, or :math:`a^2` without a curvature.

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
    """Move the components of least saliency to the free locations of largest predicted decrease.

    The k-th smallest saliency is paired with the k-th largest predicted decrease, for k up to
    ``count``. With a curvature, the component moves only if the predicted decrease is larger;
    without one it always moves, as in dynamic sparse training.

    Args:
        coefficients: a, (..., B).
        indices: (..., B), distinct in each row.
        predicted_decrease: :func:`predicted_decreases` of every location, (..., p·q).
        curvature: h at their locations, (..., B), or None.
        count: Largest number of components to move, at most B.

    Returns:
        The new locations. The caller must set the coefficients of components that moved to zero.

    Source: Evci et al., "Rigging the lottery", 2020, for the rule without curvature; the saliency
    a²h/2 is that of optimal brain damage (LeCun et al., 1989).
    """
    count = min(count, predicted_decrease.shape[-1] - indices.shape[-1])
    if count <= 0:
        return indices
    free = predicted_decrease.scatter(-1, indices, -1.0)
    target = largest(free, count)
    saliency, which = saliencies(coefficients, curvature).topk(count, largest=False)
    if curvature is not None:
        pays = free.gather(-1, target) > saliency
        target = torch.where(pays, target, indices.gather(-1, which))
    return indices.scatter(-1, which, target)


def most_swaps(components: int, progress: float, *, use_curvature: bool) -> int:
    """The largest number of components that a swap moves: a fifth of all.

    Without a curvature, moves do not stop by themselves, so the number decreases with progress.

    Args:
        components: B.
        progress: Fraction of the time for moves that is over, in [0, 1].
        use_curvature: Whether the swap compares predicted decreases with saliencies.
    """
    return fading(_SWAPPED, components, 0.0 if use_curvature else progress)


def dropped(coefficients: torch.Tensor, progress: float, turn: int) -> torch.Tensor:
    """Choose the components to drop from ΔW for the gradient that :func:`reselect` uses.

    They are those of least :math:`|a|`: two fifths of all at first, then fewer, along a cosine.
    When only one is dropped, every second turn drops the next component in cyclic order instead.

    Args:
        coefficients: a, (..., B).
        progress: Fraction of the time for moves that is over, in [0, 1].
        turn: Number of the reselection.

    Returns:
        Indices of the dropped components, (..., k).
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
    """Move dropped components to the best locations, by a gradient that was computed without them.

    A dropped component whose own location is one of the best stays there. Therefore a component
    moves only if another location is better by the same gradient, and only the ratios of the
    curvature matter.

    Args:
        indices: (..., B), distinct in each row.
        dropped: Indices of the dropped components, (..., k).
        predicted_decrease: :func:`predicted_decreases` of every location without them, (..., p·q).

    Returns:
        The new locations.

    Source: Sturm and Christensen, "Cyclic matching pursuits with multiscale time-frequency
    dictionaries", 2010, with k = 1.
    """
    own = indices.gather(-1, dropped)
    # In a tie, the component's own location wins.
    here = torch.nextafter(
        predicted_decrease.gather(-1, own), predicted_decrease.new_full((), math.inf)
    )
    candidates = predicted_decrease.scatter(-1, indices, -1.0).scatter(-1, own, here)
    best = largest(candidates, dropped.shape[-1])
    is_best = _marked(candidates, best).gather(-1, own)
    is_own = _marked(candidates, own).gather(-1, best)
    # As many components must move as there are new locations: sort both to the front.
    order = is_best.int().sort(dim=-1, stable=True).indices
    fresh = best.gather(-1, is_own.int().sort(dim=-1, stable=True).indices)
    moved_to = torch.where(is_best.gather(-1, order), own.gather(-1, order), fresh)
    return indices.scatter(-1, dropped.gather(-1, order), moved_to)


def largest(values: torch.Tensor, count: int) -> torch.Tensor:
    """The indices of the largest values along the last dimension, largest first: (..., count).

    In a long vector, only values above a threshold are searched; a sample determines the threshold.
    On a GPU, where the search is fast, this would cost two synchronisations and is not done.
    """
    if values.device.type == "cpu" and values.ndim == 1 and values.shape[0] > _LONG:
        sample = values[::_SAMPLED]
        likely = min(int(_MARGIN * count / _SAMPLED) + _SPARE, sample.shape[0])
        above = (values > sample.topk(likely).values[-1]).nonzero()[:, 0]
        if above.shape[0] >= count:
            return above[values[above].topk(count).indices]
    return values.topk(count).indices


def fading(first: float, components: int, progress: float) -> int:
    """The number of components to move: a fraction at first, one at the end, a cosine in between.

    Args:
        first: Fraction of the components at first.
        components: B.
        progress: Fraction of the time that is over, in [0, 1].
    """
    return max(1, round(first * components * (1 + math.cos(math.pi * progress)) / 2))


def _marked(like: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like, dtype=torch.bool).scatter(-1, indices, value=True)


def _tiny(z: torch.Tensor) -> float:
    return torch.finfo(z.dtype).tiny

r"""Rules that move components across the whole spectrum by the predicted change of the loss.

A component is a coefficient a at a location. Expand the loss to second order in one coefficient,
with gradient Z and curvature h at its location. A new component at a location decreases the loss by
at most the *predicted decrease*, and the removal of a component whose gradient is zero increases
the loss by the *saliency*:

.. math:: \text{predicted decrease} = Z^2 / (2h), \qquad \text{saliency} = a^2 h / 2 .

A predicted decrease and a saliency are both changes of the loss and can be compared. The functions
leave out the factor 1/2, because only comparisons matter. If the curvature is unknown, h is set to
1: locations are ranked by :math:`|Z|` and components by :math:`|a|`, and a value of one ranking
cannot be compared with a value of the other.

All functions act on the last dimension and accept any leading dimensions. A location is the flat
index :math:`l^1 q + l^2` of an entry of the p×q spectrum, and no two components share a location.
"""

from __future__ import annotations

import math

import torch

# The largest fraction of the components that a swap moves, and the fraction that the first
# reselection drops. Chosen by hand on the toy experiment.
_SWAPPED, _RESELECTED = 0.2, 0.4
# In a vector longer than _LONG, on the CPU, the largest values are searched only among the values
# above a threshold: the k-th largest value of a sample, which is every _SAMPLED-th value. k is
# _MARGIN times the expected number of wanted values in the sample, plus _SPARE.
_LONG, _SAMPLED, _MARGIN, _SPARE = 2**20, 61, 1.2, 30


def predicted_decreases(z: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Predicted decreases without the factor 1/2: :math:`Z^2/h`, or :math:`Z^2` if h is unknown."""
    if curvature is None:
        return z.square()
    return torch.where(curvature > 0, z.square() / curvature, 0)


def saliencies(coefficients: torch.Tensor, curvature: torch.Tensor | None) -> torch.Tensor:
    """Saliencies without the factor 1/2: :math:`a^2 h`, or :math:`a^2` if h is unknown."""
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
    ``count``. If the curvature is known, the component moves only if the predicted decrease is
    larger than the saliency; otherwise it always moves, as in dynamic sparse training.

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
    saliency, dropped = saliencies(coefficients, curvature).topk(count, largest=False)
    if curvature is not None:
        pays = free.gather(-1, target) > saliency
        target = torch.where(pays, target, indices.gather(-1, dropped))
    return indices.scatter(-1, dropped, target)


def most_moved(components: int, progress: float, *, use_curvature: bool) -> int:
    """The largest number of components that one swap may move: a fifth of all.

    Without the curvature, every swap moves this many components, so the number decreases over time.
    """
    return cosine_count(_SWAPPED, components, 0.0 if use_curvature else progress)


def components_to_drop(coefficients: torch.Tensor, progress: float, turn: int) -> torch.Tensor:
    """Choose the components that :func:`reselect` moves by a gradient computed without them.

    These are the components with the smallest :math:`|a|`. At first they are two fifths of all, and
    their number falls along a cosine. Once it is 1, every second turn instead chooses the next
    component in cyclic order.

    Returns:
        Positions of these components in the last dimension of ``coefficients``, (..., k).
    """
    components = coefficients.shape[-1]
    count = cosine_count(_RESELECTED, components, progress)
    if count == 1 and turn % 2:
        size = (*coefficients.shape[:-1], 1)
        return torch.full(size, turn // 2 % components, device=coefficients.device)
    return coefficients.abs().topk(count, largest=False).indices


def reselect(
    indices: torch.Tensor, dropped: torch.Tensor, predicted_decrease: torch.Tensor
) -> torch.Tensor:
    """Move k dropped components to the k best of their own locations and the free locations.

    The best locations have the largest predicted decreases, by a gradient that was computed without
    the dropped components. A component whose own location is one of the k best stays there. Values
    of one gradient are compared, so a constant factor of the curvature changes nothing.

    Returns:
        The new locations, (..., B).

    Source: Sturm and Christensen, "Cyclic matching pursuits with multiscale time-frequency
    dictionaries", 2010, with k = 1.
    """
    old = indices.gather(-1, dropped)
    # In a tie, the component's own location wins.
    infinity = predicted_decrease.new_full((), math.inf)
    preferred = torch.nextafter(predicted_decrease.gather(-1, old), infinity)
    candidates = predicted_decrease.scatter(-1, indices, -1.0).scatter(-1, old, preferred)
    best = largest(candidates, dropped.shape[-1])
    is_best = _marked(candidates, best).gather(-1, old)
    is_own = _marked(candidates, old).gather(-1, best)
    # There are as many new locations as components that move. Sort both to the front, to pair them.
    order = is_best.int().sort(dim=-1, stable=True).indices
    fresh = best.gather(-1, is_own.int().sort(dim=-1, stable=True).indices)
    moved_to = torch.where(is_best.gather(-1, order), old.gather(-1, order), fresh)
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


def cosine_count(first: float, components: int, progress: float) -> int:
    """The number of components to move; it falls along a cosine from a fraction of all to 1."""
    return max(1, round(first * components * (1 + math.cos(math.pi * progress)) / 2))


def _marked(values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(values, dtype=torch.bool).scatter(-1, indices, value=True)

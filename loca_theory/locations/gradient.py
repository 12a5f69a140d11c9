"""The gradient with respect to locations, from differences of Z, the DCT of the gradient of ΔW."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch

LocationGradient = Literal["central", "forward", "backward", "eight-direction"]
Sample = Callable[[int, int], torch.Tensor]

_DIRECTIONS = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
# Displacements (rows, columns) at which each rule evaluates Z.
NEIGHBOURS: dict[LocationGradient, set[tuple[int, int]]] = {
    "central": {(1, 0), (0, 1), (-1, 0), (0, -1)},
    "forward": {(0, 0), (1, 0), (0, 1)},
    "backward": {(0, 0), (-1, 0), (0, -1)},
    "eight-direction": {(0, 0), *_DIRECTIONS},
}


def location_gradient(
    rule: LocationGradient,
    sample: Sample,
    weights: torch.Tensor,
    indices: torch.Tensor,
    shape: tuple[int, int],
) -> torch.Tensor:
    r"""First-order change of the loss when a component moves by one location.

    Let :math:`Z = C\,(\partial L/\partial\Delta W)\,D^\top`, and let Z(l, d) be its entry at
    l + d. An index outside the spectrum is replaced by the nearest one inside: the neighbour across
    the border is the component's own location. For a component of coefficient a_n at location l:

    - ``central``: :math:`\tfrac{\alpha a_n}{2}\,[Z(l, e) - Z(l, -e)]` along each axis e. The ½
      also applies at the border.
    - ``forward``: :math:`\alpha a_n [Z(l, e) - Z(l, 0)]`;
      ``backward``: :math:`\alpha a_n [Z(l, 0) - Z(l, -e)]`; zero across the border.
    - ``eight-direction``: for each of the up to 8 neighbours inside, the slope
      :math:`s_d = \alpha a_n [Z(l, d) - Z(l, 0)] / \lVert d\rVert`; the gradient is
      :math:`s_d\, d / \lVert d\rVert` for the d with the steepest descent, or zero if no
      neighbour descends.

    Each component is treated separately; components that share a location use the same values of Z.

    Returns:
        (B, 2), per location (not per unit of [0, 1]).

    Source: equation (position_gradient2) of the paper; V4 and V5 of its ablation; the remark that
    closes its appendix on the toy experiment. The paper gives no rule at the borders; clamping is
    what its published code does.
    """
    if rule == "eight-direction":
        return _steepest(sample, weights, indices, shape)
    match rule:
        case "central":
            difference = (_along(sample, 1) - _along(sample, -1)) / 2
        case "forward":
            difference = _along(sample, 1) - sample(0, 0)[:, None]
        case _:
            difference = sample(0, 0)[:, None] - _along(sample, -1)
    return weights[:, None] * difference


def _along(sample: Sample, by: int) -> torch.Tensor:
    return torch.stack([sample(by, 0), sample(0, by)], dim=1)


def _steepest(
    sample: Sample, weights: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int]
) -> torch.Tensor:
    centre = sample(0, 0)
    row, column = indices.unbind(1)
    slope = torch.zeros_like(weights)
    gradient = weights.new_zeros((weights.shape[0], 2))
    for i, j in _DIRECTIONS:
        length = math.hypot(i, j)
        inside = (row >= -i) & (row < shape[0] - i) & (column >= -j) & (column < shape[1] - j)
        new = weights * (sample(i, j) - centre) / length
        steeper = inside & (new < slope)
        slope = torch.where(steeper, new, slope)
        step = torch.stack([new * i, new * j], dim=1) / length
        gradient = torch.where(steeper[:, None], step, gradient)
    return gradient

"""Where the components of a sparse spectrum go next: pure functions of tensors.

What the adapters and the toy experiment share, and neither's own.

- :func:`location_gradient`: the gradient with respect to a location, from differences of Z.
- :func:`predicted_decreases`, :func:`saliencies`: what a new component would win, and what removing
  one costs.
- :func:`swap`, :func:`reselect`: moves across the whole spectrum by them.
"""

from loca_theory.locations.gradient import LocationGradient, location_gradient
from loca_theory.locations.prune_and_regrow import (
    dropped,
    largest,
    most_swaps,
    predicted_decreases,
    reselect,
    saliencies,
    swap,
)

__all__ = [
    "LocationGradient",
    "dropped",
    "largest",
    "location_gradient",
    "most_swaps",
    "predicted_decreases",
    "reselect",
    "saliencies",
    "swap",
]

"""Rules that move the components of a sparse spectrum, as pure functions of tensors.

The adapters and the toy experiment both use them.

- :func:`location_gradient`: the gradient with respect to a location, from differences of Z.
- :func:`predicted_decreases`, :func:`saliencies`: the decrease of the loss by a new component, and
  its increase by the removal of one.
- :func:`swap`, :func:`reselect`: moves across the whole spectrum that compare these values.
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

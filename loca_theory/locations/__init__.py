"""Where the components of a sparse spectrum go next: pure functions of tensors.

What the adapters and the toy experiment share, and neither's own.

- :func:`location_gradient`: the gradient with respect to a location, from differences of Z.
- :func:`gains`, :func:`losses`: what a new component would win, and what removing one costs.
- :func:`swap`, :func:`reselect`: moves across the whole spectrum by them.
"""

from loca_theory.locations.exchange import (
    gains,
    largest,
    left_out,
    losses,
    most_swaps,
    reselect,
    swap,
)
from loca_theory.locations.gradient import LocationGradient, location_gradient

__all__ = [
    "LocationGradient",
    "gains",
    "largest",
    "left_out",
    "location_gradient",
    "losses",
    "most_swaps",
    "reselect",
    "swap",
]

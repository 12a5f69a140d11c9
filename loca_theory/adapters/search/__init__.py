"""Who moves the indices of a layer, and when.

- :class:`AlternatingSchedule`: when coefficients and when locations are learned.
- :class:`LocationTraining`: takes the layers of a model through a schedule while an optimiser
  steps.
- :mod:`~loca_theory.adapters.search.gradient` and :mod:`~loca_theory.adapters.search.regrow`: the
  searches of a single layer.
"""

from loca_theory.adapters.search.schedule import AlternatingSchedule
from loca_theory.adapters.search.training import LocationTraining
from loca_theory.adapters.search.zero import follow_deepspeed

__all__ = ["AlternatingSchedule", "LocationTraining", "follow_deepspeed"]

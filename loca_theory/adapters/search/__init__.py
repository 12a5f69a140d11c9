"""Who moves the indices of a layer, and when.

- :mod:`~loca_theory.adapters.search.schedule`: when coefficients and when locations are learned.
- :mod:`~loca_theory.adapters.search.following`: follows the steps of an optimiser.
- :mod:`~loca_theory.adapters.search.gradient` and :mod:`~loca_theory.adapters.search.regrow`: the
  searches of a single layer.
"""

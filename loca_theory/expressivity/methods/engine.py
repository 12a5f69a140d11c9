"""How the error of a method is obtained."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """How an error is obtained.

    - ``exact``: the expectation, computed without sampling, accurate to rounding error.
    - ``asymptotic``: the limit p, q → ∞ with q/p and r/p fixed; finite sizes may differ.
    - ``monte-carlo``: a mean over random draws, with its standard error.
    """

    EXACT = "exact"
    ASYMPTOTIC = "asymptotic"
    MONTE_CARLO = "monte-carlo"

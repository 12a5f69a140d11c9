"""The curves: every approximation that the package compares, and how each is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from loca_theory._lookup import find
from loca_theory.expressivity.budgets import Budget


class Engine(StrEnum):
    """How an error is obtained.

    - ``exact``: a closed evaluation of the expectation, to rounding.
    - ``asymptotic``: the limit of large matrices at the same shares; no finite-size statement.
    - ``monte-carlo``: a mean over random draws, with its standard error.
    """

    EXACT = "exact"
    ASYMPTOTIC = "asymptotic"
    MONTE_CARLO = "monte-carlo"


@dataclass(frozen=True)
class Selection:
    """An approximation that keeps some coordinates of an orthonormal basis and drops the rest.

    Attributes:
        basis: ``entries`` of the matrix, its ``cosine`` (DCT) or real ``fourier`` coordinates.
        items: What is kept as a unit: single ``coefficients``, ``locations`` (both parts of an
            independent Fourier place), or ``cosines`` (only the real part of a place, and the same
            one for both members of a conjugate pair).
        random: Items in random order instead of the largest first.
        count: How many items a budget pays for.
    """

    basis: Literal["entries", "cosine", "fourier"]
    items: Literal["coefficients", "locations", "cosines"]
    random: bool
    count: Callable[[Budget], int]


@dataclass(frozen=True)
class Curve:
    """One line of the comparison.

    Attributes:
        name: Short name, as in the paper where it has one.
        title: What it stands for.
        engines: The engines that can evaluate it (``exact`` for R only at small sizes).
        selection: How it selects coordinates, where that is what it does.
        reduced: Whether the ``reduced`` sampler knows its law without drawing a matrix.
    """

    name: str
    title: str
    engines: frozenset[Engine]
    selection: Selection | None = None
    reduced: bool = True


_ALL = frozenset(Engine)
_FORMULA = frozenset({Engine.EXACT, Engine.ASYMPTOTIC})
_SIMULATED = frozenset({Engine.MONTE_CARLO})


def _random_locations(budget: Budget) -> int:
    return budget.random_locations


def _random_coefficients(budget: Budget) -> int:
    return budget.random_coefficients


def _chosen_locations(budget: Budget) -> int:
    return budget.chosen_locations


def _chosen_coefficients(budget: Budget) -> int:
    return budget.chosen_coefficients


CURVES: dict[str, Curve] = {
    curve.name: curve
    for curve in (
        Curve("R", "LoRA, best rank-r approximation", _ALL),
        Curve("U", "random locations, the printed line 1 - N0/pq", _FORMULA),
        Curve(
            "F1",
            "Fourier, random locations",
            _ALL,
            Selection("fourier", "locations", random=True, count=_random_locations),
        ),
        Curve(
            "V1",
            "DCT, random places",
            _ALL,
            Selection("cosine", "coefficients", random=True, count=_random_coefficients),
        ),
        Curve(
            "FourierFT",
            "as shipped: real coefficients, random places of the full spectrum",
            _ALL,
            Selection("fourier", "cosines", random=True, count=_random_coefficients),
        ),
        Curve("M1", "upper bracket of F2", _FORMULA),
        Curve(
            "F2",
            "Fourier, best locations",
            _ALL,
            Selection("fourier", "locations", random=False, count=_chosen_locations),
        ),
        Curve("M2", "lower bracket of F2", _FORMULA),
        Curve(
            "F3",
            "Fourier, best single coefficients",
            _ALL,
            Selection("fourier", "coefficients", random=False, count=_chosen_coefficients),
        ),
        Curve(
            "D",
            "DCT, best coefficients (LoCA's target)",
            _ALL,
            Selection("cosine", "coefficients", random=False, count=_chosen_coefficients),
        ),
        Curve(
            "S",
            "the largest entries of the matrix itself",
            _ALL,
            Selection("entries", "coefficients", random=False, count=_chosen_coefficients),
        ),
        Curve("RD", "rate-distortion bound at LoRA's stored bits", _FORMULA),
        Curve("DoRA", "column magnitudes times a rank-r direction", _SIMULATED, reduced=False),
        Curve("VeRA", "frozen random factors, trained diagonals", _SIMULATED, reduced=False),
    )
}

DEFAULT_CURVES: tuple[str, ...] = tuple(
    name for name, curve in CURVES.items() if curve.engines != _SIMULATED
)


def find_curve(name: str) -> Curve:
    """The curve of that name.

    Raises:
        InvalidArgumentError: there is none; the message lists those there are.
    """
    return find("curve", name, CURVES)

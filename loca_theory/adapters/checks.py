"""Checks of settings, for layers and for configurations."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from loca_theory.errors import InvalidArgumentError


def check_choice(label: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Check that the value is one of the known names."""
    if value not in choices:
        raise InvalidArgumentError(
            f"{label} must be one of {', '.join(map(str, choices))}, not {value!r}"
        )


def check_whole(label: str, value: Any, minimum: int) -> None:
    """Check that the value is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise InvalidArgumentError(
            f"{label} must be an integer of at least {minimum}, not {value!r}"
        )


def check_scaling(label: str, value: Any) -> None:
    """Check that the value is a positive finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 < float(value) < math.inf):
        raise InvalidArgumentError(f"{label} must be positive and finite, not {value!r}")

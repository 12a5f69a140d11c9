"""Checks of settings, for layers and for configurations."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from loca_theory.errors import InvalidArgumentError


def check_choice(what: str, value: Any, known: tuple[Any, ...]) -> None:
    """Check that the value is one of the known names."""
    if value not in known:
        msg = f"{what} must be one of {', '.join(map(str, known))}, not {value!r}"
        raise InvalidArgumentError(msg)


def check_whole(what: str, value: Any, least: int) -> None:
    """Check that the value is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        msg = f"{what} must be an integer of at least {least}, not {value!r}"
        raise InvalidArgumentError(msg)


def check_scaling(what: str, value: Any) -> None:
    """Check that the value is a positive finite number."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not (number and 0 < float(value) < math.inf):
        msg = f"{what} must be positive and finite, not {value!r}"
        raise InvalidArgumentError(msg)

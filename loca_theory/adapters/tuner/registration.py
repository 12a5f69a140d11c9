"""Registration of LoCA with PEFT.

PEFT has no public interface for new methods: its methods are members of the enum
:class:`peft.PeftType`. This module extends the enum at run time and then calls PEFT's own
``register_peft_method``. It checks the version of PEFT and that the enum was extended, so that a
change of PEFT's internals causes a clear error.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.version import Version

from loca_theory.errors import ResourceError

# The tests in tests/adapters pass with PEFT from the first version up to before the second.
TESTED = ("0.21", "0.22")
NAME = "LOCA"


def check_peft() -> None:
    """Check that PEFT is installed in a version that this package was tested with.

    Raises:
        ResourceError: PEFT is missing or has another version.
    """
    low, high = TESTED
    wanted = f'pip install "peft>={low},<{high}"'
    try:
        found = version("peft")
    except PackageNotFoundError:
        msg = f'LoCA in PEFT needs peft: {wanted}, or pip install "loca-theory[adapters]"'
        raise ResourceError(msg) from None
    if not Version(low) <= Version(found) < Version(high):
        msg = f"LoCA was tested with peft>={low},<{high}, but peft {found} is installed: {wanted}"
        raise ResourceError(msg)


def register(config_class: type, model_class: type) -> None:
    """Register the method with PEFT; a second call does nothing.

    Raises:
        ResourceError: PEFT's enum of methods cannot be extended.
    """
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
    from peft.utils import PeftType, register_peft_method

    if NAME in PeftType.__members__ and PeftType[NAME] in PEFT_TYPE_TO_TUNER_MAPPING:
        return
    _extend(PeftType)
    register_peft_method(name=NAME.lower(), config_cls=config_class, model_cls=model_class)


def _extend(enum: Any) -> None:
    """Add the member ``NAME`` to an enum of strings."""
    if NAME in enum.__members__:
        return
    member = str.__new__(enum, NAME)
    try:
        member._name_, member._value_ = NAME, NAME
        member._sort_order_ = len(enum.__members__)
        setattr(enum, NAME, member)
        enum._member_names_.append(NAME)
        enum._member_map_[NAME] = member
        enum._value2member_map_[NAME] = member
        known = enum(NAME) is member and enum[NAME] is member and NAME in list(enum)
    except (AttributeError, TypeError, KeyError, ValueError):
        known = False
    if not known:
        msg = f"{enum.__qualname__} of peft {version('peft')} cannot be extended; "
        msg += f'pip install "peft>={TESTED[0]},<{TESTED[1]}"'
        raise ResourceError(msg)

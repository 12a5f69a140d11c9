"""Registration of LoCA with PEFT.

PEFT's ``register_peft_method`` accepts only members of the enum :class:`peft.PeftType`, and PEFT
has no public way to add one. This module extends the enum at run time and then calls it. It checks
the version of PEFT, so that a change of PEFT's internals causes a clear error.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from packaging.specifiers import SpecifierSet

from loca_theory.errors import ResourceError

# The tests in tests/adapters pass with these versions of PEFT.
TESTED = ">=0.21.1,<0.22"
NAME = "LOCA"


def check_peft() -> None:
    """Check that PEFT is installed in a version that this package was tested with.

    Raises:
        ResourceError: PEFT is missing or has another version.
    """
    command = f'pip install "peft{TESTED}"'
    try:
        installed = version("peft")
    except PackageNotFoundError:
        raise ResourceError(
            f'LoCA in PEFT needs peft: {command}, or pip install "loca-theory[adapters]"'
        ) from None
    # To a specifier, 0.22.0rc1 is not below 0.22; to a comparison of versions it is.
    if not SpecifierSet(TESTED).contains(installed, prereleases=True):
        raise ResourceError(
            f"LoCA was tested with peft{TESTED}, but peft {installed} is installed: {command}"
        )


def register(config_class: type, model_class: type) -> None:
    """Register the method with PEFT; a second call does nothing."""
    from peft.utils import PeftType, register_peft_method

    if NAME in PeftType.__members__:
        return
    member: Any = str.__new__(PeftType, NAME)
    member._name_, member._value_ = NAME, NAME
    member._sort_order_ = len(PeftType.__members__)
    setattr(PeftType, NAME, member)
    PeftType._member_names_.append(NAME)
    PeftType._member_map_[NAME] = member
    PeftType._value2member_map_[NAME] = member
    register_peft_method(name=NAME.lower(), config_cls=config_class, model_cls=model_class)

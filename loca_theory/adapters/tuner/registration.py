"""Teaching PEFT a method that it does not ship.

PEFT has no public way in: its methods are members of the enum :class:`peft.PeftType`, which this
module extends at run time before it calls PEFT's own ``register_peft_method``. Everything here
that leans on PEFT's inside is checked first, so that a PEFT that changed says so.
"""

from __future__ import annotations

from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packaging.version import Version

from loca_theory.errors import ResourceError

# The versions that the tests of tests/adapters pass with.
TESTED = ("0.21", "0.22")
NAME = "LOCA"
HOW_TO_LOAD = """
## How to load

This adapter was trained with LoCA of the package `loca-theory`, which PEFT has to be taught first:

```python
import loca_theory.adapters  # pip install "loca-theory[adapters]"
from peft import PeftModel

model = PeftModel.from_pretrained(base_model, "PATH_OR_NAME_OF_THIS_ADAPTER")
```
"""


def check_peft() -> None:
    """See whether PEFT is there and one that this package was tested with.

    Raises:
        ResourceError: it is not.
    """
    low, high = TESTED
    wanted = f'pip install "peft>={low},<{high}"'
    try:
        found = version("peft")
    except PackageNotFoundError:
        msg = f'LoCA in PEFT needs peft: {wanted}, or pip install "loca-theory[adapters]"'
        raise ResourceError(msg) from None
    if not Version(low) <= Version(found) < Version(high):
        msg = f"LoCA was tested with peft {low} up to before {high}, and this is {found}: {wanted}"
        raise ResourceError(msg)


def register(config_class: type, model_class: type) -> None:
    """Make PEFT know the method. Does nothing the second time.

    Raises:
        ResourceError: the inside of PEFT is not what this was written for.
    """
    from peft import PeftModel
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
    from peft.utils import PeftType, register_peft_method

    if NAME in PeftType.__members__ and PeftType[NAME] in PEFT_TYPE_TO_TUNER_MAPPING:
        return
    _extend(PeftType)
    register_peft_method(name=NAME.lower(), config_cls=config_class, model_cls=model_class)
    write = PeftModel.create_or_update_model_card

    @wraps(write)
    def create_or_update_model_card(self: Any, output_dir: str) -> Any:
        result = write(self, output_dir)
        if any(config.peft_type == PeftType[NAME] for config in self.peft_config.values()):
            _explain(Path(output_dir) / "README.md")
        return result

    PeftModel.create_or_update_model_card = create_or_update_model_card


def _extend(enum: Any) -> None:
    """Add the member to an enum of strings."""
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


def _explain(card: Path) -> None:
    text = card.read_text(encoding="utf-8")
    if HOW_TO_LOAD.strip() not in text:
        card.write_text(text.rstrip() + "\n" + HOW_TO_LOAD, encoding="utf-8")

"""Fine-tuning by learned cosine coefficients at learned locations: ΔW = α Cᵀ S(a, l) D.

- :class:`CosineSpectrum`: coefficients a, locations l and the ΔW that they define;
  :class:`LoCALinear`: a frozen linear layer with a spectrum.
- :class:`AlternatingSchedule`: when coefficients and when locations are learned. :func:`follow`
  lets a search for locations follow an optimiser.
- :class:`LoCAConfig`, :class:`LoCAModel`, :class:`LoCALayer`: LoCA as a method of Hugging Face
  PEFT. Importing this package registers it if PEFT is installed. :class:`LoCACallback`: the search
  in the Trainer of transformers. These four need the extra ``adapters``.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loca_theory.adapters.linear import LoCALinear
from loca_theory.adapters.search import AlternatingSchedule
from loca_theory.adapters.search.following import follow
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import ResourceError

if TYPE_CHECKING:
    from loca_theory.adapters.trainer import LoCACallback
    from loca_theory.adapters.tuner import LoCAConfig, LoCALayer, LoCAModel

__all__ = [
    "AlternatingSchedule",
    "CosineSpectrum",
    "LoCACallback",
    "LoCAConfig",
    "LoCALayer",
    "LoCALinear",
    "LoCAModel",
    "follow",
]

_IN_PEFT = ("LoCAConfig", "LoCALayer", "LoCAModel")


def __getattr__(name: str) -> Any:
    if name not in (*_IN_PEFT, "LoCACallback"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = "tuner" if name in _IN_PEFT else "trainer"
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        msg = f'{name} cannot be imported: {error}; pip install "loca-theory[adapters]"'
        raise ResourceError(msg) from error


if find_spec("peft") is not None:
    try:
        import_module(f"{__name__}.tuner")
    except (ResourceError, ImportError) as error:
        warnings.warn(f"LoCA is not registered with PEFT: {error}", stacklevel=2)

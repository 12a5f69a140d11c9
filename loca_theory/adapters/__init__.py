"""Fine-tuning by learned cosine coefficients at learned locations: ΔW = α Cᵀ S(a, l) D.

- :class:`CosineSpectrum`: coefficients a, locations l and the ΔW that they define;
  :class:`LoCALinear`: a frozen linear layer with a spectrum.
- :class:`AlternatingSchedule`: when coefficients and when locations are learned. :func:`follow`
  lets a search for locations follow an optimiser.
- :class:`LoCAConfig`, :class:`LoCAModel`, :class:`LoCALayer`: LoCA as a method of Hugging Face
  PEFT. Importing this package registers it if PEFT is installed. :class:`LoCACallback`: the search
  in the Trainer of transformers. These four need the extra ``adapters``.
- :func:`first_step`, :func:`first_steps`: how far the first steps of Adam move a weight, for any
  adapter of PEFT; :func:`equivalent_lr`: the learning rate at which two adapters move it as far.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec

import lazy_loader

from loca_theory.errors import ResourceError

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if find_spec("peft") is not None:
    try:
        import_module(f"{__name__}.tuner")
    except (ResourceError, ImportError) as error:
        warnings.warn(f"LoCA is not registered with PEFT: {error}", stacklevel=2)

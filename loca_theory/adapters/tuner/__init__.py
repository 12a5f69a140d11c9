"""LoCA as a method of Hugging Face PEFT.

Importing this package teaches PEFT the method: ``get_peft_model(model, LoCAConfig(...))``,
``PeftModel.from_pretrained`` and all the rest then work as for PEFT's own methods.
"""

from loca_theory.adapters.tuner.registration import check_peft

check_peft()

from loca_theory.adapters.tuner.config import LoCAConfig  # noqa: E402
from loca_theory.adapters.tuner.layer import LoCALayer  # noqa: E402
from loca_theory.adapters.tuner.model import LoCAModel  # noqa: E402
from loca_theory.adapters.tuner.registration import register  # noqa: E402

register(LoCAConfig, LoCAModel)

__all__ = ["LoCAConfig", "LoCALayer", "LoCAModel"]

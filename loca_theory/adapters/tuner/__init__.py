"""LoCA as a method of Hugging Face PEFT.

Importing this package registers the method with PEFT: ``get_peft_model(model, LoCAConfig(...))``,
``PeftModel.from_pretrained`` and the rest of PEFT then work as for its own methods.
"""

from loca_theory.adapters.tuner.registration import check_peft

check_peft()

from loca_theory.adapters.tuner.config import LoCAConfig  # noqa: E402
from loca_theory.adapters.tuner.layer import LoCALayer  # noqa: E402
from loca_theory.adapters.tuner.model import LoCAModel  # noqa: E402
from loca_theory.adapters.tuner.registration import register  # noqa: E402

register(LoCAConfig, LoCAModel)

__all__ = ["LoCAConfig", "LoCALayer", "LoCAModel"]

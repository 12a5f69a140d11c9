"""FourierFT: random Fourier coefficients, which are only trained."""

from __future__ import annotations

from loca_theory.checkpoints.form.form import AdapterType
from loca_theory.checkpoints.form.loca import LoCA
from loca_theory.expressivity import Budget


class FourierFT(AdapterType):
    """FourierFT; PEFT adapts the same layers with it as with LoCA."""

    key = LoCA.key
    title = "FourierFT"
    words = "FourierFT"
    method = "FourierFT"
    config_class = "peft", "FourierFTConfig"
    size_setting = LoCA.size_setting
    pattern_setting = LoCA.pattern_setting

    def size_of_budget(self, budget: Budget) -> int:
        """The coefficients at random locations that a budget pays for."""
        return budget.random_coefficients

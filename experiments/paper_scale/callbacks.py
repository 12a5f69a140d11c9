"""What a run adds to the Trainer of transformers. Needs the extra ``paper-scale``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from transformers import Trainer, TrainerCallback


class Health(TrainerCallback):
    """Ends a training whose loss is no number any more.

    Attributes:
        diverged: Whether that has happened.
    """

    def __init__(self) -> None:
        self.diverged = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Look at what is logged."""
        del args, state, kwargs
        self.look(logs or {})
        if self.diverged:
            control.should_training_stop = True

    def look(self, logs: Mapping[str, Any]) -> None:
        """Take note of a loss that is infinite or no number."""
        for name, value in logs.items():
            if name.endswith("loss") and not math.isfinite(float(value)):
                self.diverged = True


class AllocateRanks(TrainerCallback):
    """Lets AdaLoRA share out its ranks after each step; nothing for other methods."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients of the step are still there."""
        del args, control
        base: Any = getattr(kwargs.get("model"), "base_model", None)
        if hasattr(base, "update_and_allocate"):
            base.update_and_allocate(state.global_step + 1)


class LossTrainer(Trainer):
    """A Trainer that may be given another loss than the model's own.

    Attributes:
        own_loss: Makes the loss from the model and a batch; None for the model's own.
    """

    own_loss: Callable[[Any, Any], Any] | None = None

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """The loss of a batch."""
        if self.own_loss is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        loss = self.own_loss(model, inputs)
        return (loss, {"loss": loss}) if return_outputs else loss

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> Any:
        """A loss of one's own is all there is to predict."""
        if self.own_loss is None:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        import torch

        with torch.no_grad():
            inputs = self._prepare_inputs(inputs)
            return self.own_loss(model, inputs).detach(), None, None

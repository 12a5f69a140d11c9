"""What a run adds to the Trainer of transformers. Needs the extra ``paper-scale``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click
from torch import nn
from transformers import Trainer, TrainerCallback

from experiments.paper_scale.metrics import metrics_of

# Largest norm of the gradient of a group of parameters.
_MOST_GRADIENT = 1.0


class Health(TrainerCallback):
    """Ends a training whose loss is not a number any more.

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


class Regularise(TrainerCallback):
    """AdaLoRA's regulariser, which keeps its factors orthogonal; nothing for other methods.

    The mean of ‖PᵀP − 1‖ over all factors P, times its weight, is added to the loss of a step
    (Zhang et al., 2023). PEFT adds it where the model under its outer wrapper is called, with
    labels; the Trainer calls the wrapper, and without labels where these are smoothed. Only the
    gradient is added here, once per step, so that the loss that is told is that of the task.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients are complete and not clipped yet."""
        del args, state, control
        model: Any = kwargs.get("model")
        base: Any = getattr(model, "base_model", None)
        if not hasattr(base, "update_and_allocate"):
            return
        terms = [
            (p @ p.T if "lora_A" in name else p.T @ p).sub(_identity(p)).norm()
            for name, p in base.named_parameters()
            if "lora_A" in name or "lora_B" in name
        ]
        weight = base.peft_config[base.trainable_adapter_name].orth_reg_weight
        (weight * sum(terms) / len(terms)).backward()


def _identity(factor: Any) -> Any:
    import torch

    return torch.eye(min(factor.shape), dtype=factor.dtype, device=factor.device)


class ClipGroups(TrainerCallback):
    """Clips the gradient of each group of parameters on its own.

    The Trainer clips all of them together, where the large gradients of locations stifle the rest.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients of the step are complete."""
        del args, state, control
        optimizer: Any = kwargs["optimizer"]
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], _MOST_GRADIENT)


class Progress(TrainerCallback):
    """A line for every epoch, evaluation and checkpoint, where there is no terminal for a bar."""

    def __init__(self) -> None:
        self._loss: float | None = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Remember the loss."""
        del args, state, control, kwargs
        self._loss = (logs or {}).get("loss", self._loss)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch that is evaluated is told with its metrics."""
        del control, kwargs
        if args.eval_strategy == "no":
            self._tell(state, {})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint is written."""
        del args, control, kwargs
        self._tell(state, {}, "; checkpoint")

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """The metrics are there."""
        del args, control, kwargs
        self._tell(state, metrics or {})

    def _tell(self, state: Any, metrics: Mapping[str, Any], end: str = "") -> None:
        parts = [f"step {state.global_step} of {state.max_steps}"]
        if state.epoch is not None:
            parts.append(f"epoch {state.epoch:.2f}")
        if self._loss is not None:
            parts.append(f"training loss {self._loss:.4g}")
        parts += [f"{name} {value:.4g}" for name, value in metrics_of(metrics).items()]
        click.echo(", ".join(parts) + end, err=True)


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

"""Callbacks and extensions of the transformers Trainer. Needs the extra ``paper-scale``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import click
from torch import nn
from transformers import Trainer, TrainerCallback

from experiments.paper_scale.metrics import metrics_of

# Largest gradient norm of a parameter group.
_MOST_GRADIENT = 1.0


class Health(TrainerCallback):
    """Stop the training when the loss is no longer finite.

    Attributes:
        diverged: Whether this has happened.
    """

    def __init__(self) -> None:
        self.diverged = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Check the logged loss."""
        del args, state, kwargs
        self.look(logs or {})
        if self.diverged:
            control.should_training_stop = True

    def look(self, logs: Mapping[str, Any]) -> None:
        """Set ``diverged`` if a loss is infinite or NaN."""
        for name, value in logs.items():
            if name.endswith("loss") and not math.isfinite(float(value)):
                self.diverged = True


class AllocateRanks(TrainerCallback):
    """Reallocate the ranks of AdaLoRA after each step; no effect for other methods."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reallocate while the gradients of the step still exist."""
        del args, control
        base: Any = getattr(kwargs.get("model"), "base_model", None)
        if hasattr(base, "update_and_allocate"):
            base.update_and_allocate(state.global_step + 1)


class Regularise(TrainerCallback):
    """Add AdaLoRA's regulariser, which keeps its factors orthogonal; no effect for other methods.

    The regulariser is the mean of ‖PᵀP − 1‖ over all factors P, times its weight (Zhang et al.,
    2023). PEFT adds it only if the model below its outer wrapper is called with labels, but the
    Trainer calls the wrapper, and without labels if these are smoothed. Only its gradient is added
    here, once per step, so that the reported loss is that of the task.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the gradient when those of the step are complete and not yet clipped."""
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
    """Clip the gradient of each parameter group separately.

    The Trainer clips all of them together, so large gradients of one group shrink the others.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Clip when the gradients of the step are complete."""
        del args, state, control
        optimizer: Any = kwargs["optimizer"]
        for group in optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], _MOST_GRADIENT)


class Progress(TrainerCallback):
    """Print a line for every epoch, evaluation and checkpoint, instead of a progress bar."""

    def __init__(self) -> None:
        self._loss: float | None = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Store the training loss for the next line."""
        del args, state, control, kwargs
        self._loss = (logs or {}).get("loss", self._loss)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print a line, unless the evaluation after the epoch prints one."""
        del control, kwargs
        if args.eval_strategy == "no":
            self._print(state, {})

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print a line about the checkpoint."""
        del args, control, kwargs
        self._print(state, {}, "; checkpoint")

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Print a line with the metrics."""
        del args, control, kwargs
        self._print(state, metrics or {})

    def _print(self, state: Any, metrics: Mapping[str, Any], end: str = "") -> None:
        parts = [f"step {state.global_step} of {state.max_steps}"]
        if state.epoch is not None:
            parts.append(f"epoch {state.epoch:.2f}")
        if self._loss is not None:
            parts.append(f"training loss {self._loss:.4g}")
        parts += [f"{name} {value:.4g}" for name, value in metrics_of(metrics).items()]
        click.echo(", ".join(parts) + end, err=True)


class LossTrainer(Trainer):
    """A Trainer with an optional loss of its own.

    Attributes:
        own_loss: Computes the loss from the model and a batch; None for the model's loss.
    """

    own_loss: Callable[[Any, Any], Any] | None = None

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Compute the loss of a batch."""
        if self.own_loss is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        loss = self.own_loss(model, inputs)
        return (loss, {"loss": loss}) if return_outputs else loss

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: Any = None
    ) -> Any:
        """Return only the loss if it is ``own_loss``."""
        if self.own_loss is None:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        import torch

        with torch.no_grad():
            inputs = self._prepare_inputs(inputs)
            return self.own_loss(model, inputs).detach(), None, None

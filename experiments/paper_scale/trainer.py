"""The Trainer of a run, its callbacks and its checkpoints. Needs the extra ``paper-scale``."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import torch
from torch import nn
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)

from experiments.paper_scale.adaptation import optimizer_groups
from experiments.paper_scale.loading import Prepared
from experiments.paper_scale.settings import Settings
from loca_theory.adapters import CosineSpectrum, LoCACallback, follow
from loca_theory.errors import InvalidArgumentError, ResourceError

_LOGGED_EVERY = 10
_MOST_WORKERS = 8
_MOST_GRADIENT = 1.0  # norm of a parameter group


class Watch(TrainerCallback):
    """Stop the training when the loss is not finite; without a terminal, print where it is."""

    diverged = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Look at the logged loss."""
        del args, state, kwargs
        self.look(logs or {})
        if self.diverged:
            control.should_training_stop = True

    def look(self, logs: Mapping[str, Any]) -> None:
        """Set ``diverged`` if a loss is infinite or NaN."""
        losses = [float(value) for name, value in logs.items() if name.endswith("loss")]
        self.diverged = self.diverged or not all(map(math.isfinite, losses))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print a line at every checkpoint, also that of an epoch's end."""
        del control, kwargs
        if args.disable_tqdm:
            logged = state.log_history[-1] if state.log_history else {}
            shown = (f"{name} {value:.4g}" for name, value in logged.items() if name != "step")
            line = ", ".join((f"step {state.global_step} of {state.max_steps}", *shown))
            click.echo(line, err=True)

    on_epoch_end = on_save


class AdaLora(TrainerCallback):
    """What AdaLoRA needs at every step; no effect for other methods.

    Its regulariser, the mean of ‖PᵀP − 1‖ over all factors P times its weight (Zhang et al., 2023),
    keeps the factors orthogonal. PEFT adds it only if the model below its outer wrapper is called
    with labels, but the Trainer calls the wrapper, and without labels if these are smoothed. Only
    its gradient is added here, so that the reported loss is that of the task.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the gradient when those of the step are complete and not yet clipped."""
        del args, state, control
        base: Any = getattr(kwargs["model"], "base_model", None)
        if not hasattr(base, "update_and_allocate"):
            return
        terms = []
        for name, p in base.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                product = p @ p.T if "lora_A" in name else p.T @ p
                terms.append((product - torch.eye(len(product)).to(product)).norm())
        weight = base.peft_config[base.trainable_adapter_name].orth_reg_weight
        (weight * sum(terms) / len(terms)).backward()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reallocate the ranks while the gradients of the step still exist."""
        del args, control
        base: Any = getattr(kwargs["model"], "base_model", None)
        if hasattr(base, "update_and_allocate"):
            base.update_and_allocate(state.global_step + 1)


class ClipGroups(TrainerCallback):
    """Clip the gradient of each parameter group separately.

    The Trainer clips all of them together, so large gradients of one group shrink the others.
    """

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Clip when the gradients of the step are complete."""
        del args, state, control
        for group in kwargs["optimizer"].param_groups:
            nn.utils.clip_grad_norm_(group["params"], _MOST_GRADIENT)


class LossTrainer(Trainer):
    """A Trainer with an optional loss of its own, of the model and a batch."""

    own_loss: Callable[[Any, Any], Any] | None = None

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Compute the loss of a batch."""
        if self.own_loss is None:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        loss = self.own_loss(model, inputs)
        return (loss, {"loss": loss}) if return_outputs else loss


def make_trainer(
    model: nn.Module,
    ready: Prepared,
    settings: Settings,
    folder: Path,
    *,
    seed: int,
    steps: int,
    save_every: int,
) -> tuple[LossTrainer, Watch]:
    """Make the Trainer, and the callback that detects divergence."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        max_steps=steps,
        max_grad_norm=0.0,  # ClipGroups clips instead
        label_smoothing_factor=settings.label_smoothing,
        seed=seed,
        logging_steps=min(_LOGGED_EVERY, steps),
        logging_nan_inf_filter=False,
        save_steps=save_every,
        save_total_limit=1,
        eval_strategy="epoch" if ready.best_of_epochs else "no",
        report_to=[],
        disable_tqdm=not sys.stderr.isatty(),
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=torch.cuda.is_available(),
        # Without a GPU, training would have to wait for workers.
        dataloader_num_workers=min(os.cpu_count() or 1, _MOST_WORKERS)
        if torch.cuda.is_available()
        else 0,
    )
    if arguments.n_gpu > 1:
        msg = "several GPUs are visible, but a run uses one; set CUDA_VISIBLE_DEVICES=0"
        raise ResourceError(msg)
    is_searching = any(isinstance(m, CosineSpectrum) and m.is_searching for m in model.modules())
    if is_searching:
        follow(model)
    optimizer = torch.optim.AdamW(optimizer_groups(model, settings, ready.head))
    warmup = settings.warmup if settings.warmup >= 1 else settings.warmup * steps
    watch = Watch()
    # AdaLoRA's regulariser comes before ClipGroups so that its gradient is clipped too.
    callbacks = [AdaLora(), ClipGroups(), watch]
    trainer = LossTrainer(
        model,
        arguments,
        train_dataset=ready.train,
        eval_dataset=ready.evaluation,
        data_collator=ready.collate,
        compute_metrics=ready.measure,
        optimizers=(optimizer, get_linear_schedule_with_warmup(optimizer, round(warmup), steps)),
        callbacks=[LoCACallback(), *callbacks] if is_searching else callbacks,
    )
    if ready.loss is not None:
        trainer.own_loss = ready.loss
        trainer.model_accepts_loss_kwargs = False  # makes the Trainer average over accumulation
    trainer.remove_callback(PrinterCallback)
    return trainer, watch


def steps_of(settings: Settings, examples: int) -> int:
    """Number of training steps, counted as in the Trainer."""
    if settings.steps is not None:
        return settings.steps
    if not examples:
        msg = "the training set is empty; give data with examples"
        raise InvalidArgumentError(msg)
    passes = math.ceil(examples / settings.batch_size)
    return math.ceil(passes / settings.accumulation) * math.ceil(settings.epochs or 1)


def last_checkpoint(folder: Path) -> str | None:
    """The latest complete checkpoint, that is with the Trainer's state, which is written last."""
    found = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = json.loads((path / "trainer_state.json").read_bytes())["global_step"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append((step, str(path)))
    return max(found)[1] if found else None

"""The adapted model, and the Trainer with what the paper's methods need besides."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import torch
import transformers
from torch import nn

from experiments.finetuning.adaptation import adapt, groups, peft, with_adapter
from experiments.finetuning.methods import Budget, Method, check, target_shape
from experiments.paper_scale.loading import Prepared
from experiments.paper_scale.settings import Settings
from loca_theory.adapters import CosineSpectrum, LoCACallback, LoCAConfig, follow
from loca_theory.errors import InvalidArgumentError, ResourceError

_LOGGED_EVERY = 10
_MOST_WORKERS = 8
_MOST_GRADIENT = 1.0  # norm of a parameter group


def adapt_as_stated(
    model: nn.Module, method: Method, settings: Settings, *, head: str | None, seed: int, steps: int
) -> nn.Module:
    """Prepare a model for training, with the paper's settings or within the budget of a rank."""
    budget = settings.r or (settings.rank if method.kind == "adalora" else None)
    is_plain = method.kind in ("lora", "dora")
    if not method.has_budget or (budget is not None and not is_plain):
        own = _loca(settings) if method.kind == "loca" else None
        if own is not None and settings.alternating_steps is not None:
            own["alternating"] = settings.alternating_steps / steps
        return adapt(
            model, method, Budget(budget or 1, steps), targets=settings.targets, head=head,
            seed=seed, overrides=own,
        )  # fmt: skip
    config = _config(method, settings, seed)
    p, q = target_shape(model, settings.targets)
    if is_plain:
        check(method, Budget(config.r, steps), (p, q), {})
    elif config.n_frequency > p * q:
        msg = f"{method.title} cannot have {config.n_frequency} components in a {p}x{q} layer; "
        msg += f"choose 1 to {p * q} (--components)"
        raise InvalidArgumentError(msg)
    return with_adapter(model, config, settings.targets, head)


def _config(method: Method, settings: Settings, seed: int) -> Any:
    if method.kind in ("lora", "dora"):
        rank = settings.r or settings.rank
        # A rank given by the user gets scaling 1 (alpha = rank), as in experiments.finetuning.
        scaling = rank if settings.r else settings.scaling
        return peft().LoraConfig(r=rank, lora_alpha=scaling, use_dora=method.kind == "dora")
    components = max(round(method.fraction * (settings.components or 1)), 1)
    if method.kind == "fourierft":
        # PEFT initialises the coefficients at random, as in the paper of FourierFT.
        scaling = {} if settings.scaling is None else {"scaling": settings.scaling}
        return peft().FourierFTConfig(n_frequency=components, random_loc_seed=seed, **scaling)
    options = {**_loca(settings), **method.options}
    steps = None if options.pop("endless", False) else settings.alternating_steps
    steps = 0 if options.pop("alternating", None) == 0.0 else steps  # V1 learns no locations
    return LoCAConfig(
        n_frequency=components, alternating_steps=steps, random_loc_seed=seed, **options
    )


def _loca(settings: Settings) -> dict[str, Any]:
    """Fields of LoCA's configuration that the paper states."""
    scaling = {} if settings.scaling is None else {"scaling": settings.scaling}
    return {
        "coefficient_steps": settings.coefficient_steps,
        "location_steps": settings.location_steps,
        "location_lr": settings.location_rate,
        **scaling,
    }


def regularise(model: Any) -> None:
    """Add the gradient of AdaLoRA's regulariser, the mean of ‖PᵀP − 1‖ over all factors P.

    PEFT does if the model below its wrapper is called with labels; the Trainer calls the wrapper.
    """
    base: Any = getattr(model, "base_model", None)
    if hasattr(base, "update_and_allocate"):
        terms = []
        for name, p in base.named_parameters():
            if "lora_A" in name or "lora_B" in name:
                product = p @ p.T if "lora_A" in name else p.T @ p
                terms.append((product - torch.eye(len(product)).to(product)).norm())
        weight = base.peft_config[base.trainable_adapter_name].orth_reg_weight
        (weight * sum(terms) / len(terms)).backward()


class Steering(transformers.TrainerCallback):
    """AdaLoRA's steps, clipping of each parameter group, and an end where a loss is not finite."""

    diverged = False

    def on_pre_optimizer_step(self, *_: Any, **kwargs: Any) -> None:
        """Regularise, and clip, when the gradients of the step are complete."""
        regularise(kwargs["model"])
        for group in kwargs["optimizer"].param_groups:
            nn.utils.clip_grad_norm_(group["params"], _MOST_GRADIENT)

    def on_optimizer_step(self, _: Any, state: Any, *__: Any, **kwargs: Any) -> None:
        """Reallocate AdaLoRA's ranks while the gradients of the step still exist."""
        base: Any = getattr(kwargs["model"], "base_model", None)
        if hasattr(base, "update_and_allocate"):
            base.update_and_allocate(state.global_step + 1)

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

    def on_save(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
        """Without a terminal, print a line at every checkpoint, also that of an epoch's end."""
        if args.disable_tqdm:
            logged = state.log_history[-1] if state.log_history else {}
            shown = (f"{name} {value:.4g}" for name, value in logged.items() if name != "step")
            line = ", ".join((f"step {state.global_step} of {state.max_steps}", *shown))
            click.echo(line, err=True)

    on_epoch_end = on_save


class LossTrainer(transformers.Trainer):
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
) -> tuple[LossTrainer, Steering]:
    """Make the Trainer, and the callback that detects divergence."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        max_steps=steps,
        max_grad_norm=0.0,  # Steering clips instead
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
    rates = {"rate": settings.rate, "head_rate": settings.head_rate}
    optimizer = torch.optim.AdamW(
        groups(model, head=ready.head, weight_decay=settings.weight_decay, **rates)
    )
    warmup = settings.warmup if settings.warmup >= 1 else settings.warmup * steps
    steering = Steering()
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, round(warmup), steps)
    trainer = LossTrainer(
        model,
        arguments,
        train_dataset=ready.train,
        eval_dataset=ready.evaluation,
        data_collator=ready.collate,
        compute_metrics=ready.measure,
        optimizers=(optimizer, schedule),
        callbacks=[LoCACallback(), steering] if is_searching else [steering],
    )
    if ready.loss is not None:
        trainer.own_loss = ready.loss
        trainer.model_accepts_loss_kwargs = False  # makes the Trainer average over accumulation
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, steering

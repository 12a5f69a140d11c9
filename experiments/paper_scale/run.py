"""One run: train with the Trainer, evaluate and store; finished runs are never repeated."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import datasets
import torch
import transformers
from torch import nn

from experiments.finetuning.adaptation import adapt, count, peft
from experiments.finetuning.methods import Budget, Method, check, find_method
from experiments.paper_scale import classification, diffusion, generation
from experiments.paper_scale.loading import Prepared, fingerprint
from experiments.paper_scale.settings import Choice, Settings, resolve
from loca_theory.adapters import CosineSpectrum, LoCACallback, LoCAConfig, follow
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import is_stored, load_rows, store_rows
from loca_theory.sweeps.version import library_version

# Increase this number when the meaning of a row changes.
_VERSION = "3"
_LIBRARIES = ("transformers", "peft", "accelerate", "datasets", "diffusers")
# Columns of a row that the command prints.
_SHOWN = {
    "task", "size", "method", "seed", "diverged", "steps", "metric", "value", "trained",
}  # fmt: skip
# Endings of the names that the Trainer reports besides the metrics.
_BESIDE = ("_runtime", "_per_second", "epoch")
_LOGGED_EVERY = 10
_MOST_WORKERS = 8
_MOST_GRADIENT = 1.0  # norm of a parameter group
_PREPARE = {
    "glue": classification.prepare,
    "vit": classification.prepare,
    "e2e": generation.prepare,
    "instruct": generation.prepare,
    "diffusion": diffusion.prepare,
}


def run(choice: Choice) -> tuple[dict[str, Any], bool]:
    """Return the stored result of a run, or compute and store it."""
    settings = resolve(choice)
    described = _described(choice, settings)
    content = json.dumps([choice.family.name, described, _VERSION], sort_keys=True)
    name = "-".join(
        (choice.family.name, choice.task, choice.model_size, choice.method, f"seed{choice.seed}",
         hashlib.sha256(content.encode()).hexdigest()[:12])
    )  # fmt: skip
    stored = _stored(choice.out, name)
    if stored is not None:
        return stored, False
    transformers.logging.set_verbosity_error()
    datasets.logging.set_verbosity(logging.CRITICAL)  # errors are raised as well
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()
        datasets.disable_progress_bars()
    folder = writable_folder(choice.out) / name
    row = _compute(choice, settings, folder)
    about = manifest(
        grid=described, seed=choice.seed, device=row["device"], dtype=choice.family.dtype
    )
    about["libraries"] |= {library: library_version(library) for library in _LIBRARIES}
    store_rows([row], about, choice.out, name)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    return row, True


def _described(choice: Choice, settings: Settings) -> dict[str, Any]:
    """Everything that the result depends on, as plain data."""
    own = {key: value for key, value in vars(choice).items() if key not in ("family", "out", "own")}
    return {
        **own,
        "settings": asdict(settings),
        "model": choice.source,
        "model_files": fingerprint(choice.model),
        "data": choice.data or choice.family.tasks[choice.task].data,
        "data_files": fingerprint(choice.data),
        **{key: str(value) for key, value in choice.own.items() if value is not None},
    }


def _stored(out: Path, name: str) -> dict[str, Any] | None:
    """The row of a finished run; None if it is missing or damaged."""
    if not is_stored(out, name):
        return None
    try:
        table, _ = load_rows(out, name)
        if len(table) == 1 and set(table.columns) >= _SHOWN:
            return {str(key): value for key, value in table.iloc[0].items()}
    except ResourceError:
        pass
    click.echo(f"{out / name}.parquet or its manifest is damaged and is computed again", err=True)
    return None


def _compute(choice: Choice, settings: Settings, folder: Path) -> dict[str, Any]:
    method = find_method(choice.method)
    transformers.set_seed(choice.seed)
    ready = _PREPARE[choice.family.name](choice, settings)
    steps = steps_of(settings, len(ready.train))
    model = adapt_as_stated(
        ready.model, method, settings, head=ready.head, seed=choice.seed, steps=steps
    )
    # Count before training: at its end locations are frozen and would not count as learned.
    rank = (settings.r or settings.rank) if method.kind == "adalora" else None
    counts = count(model, ready.head, pruned_to=rank)
    trainer, steering = make_trainer(
        model, ready, settings, folder, seed=choice.seed, steps=steps, save_every=choice.save_every
    )
    last = last_checkpoint(folder)
    start = time.monotonic()
    try:
        trainer.train(resume_from_checkpoint=last)
        seconds = time.monotonic() - start
        metrics = {} if steering.diverged else _evaluate(trainer, ready)
    except torch.OutOfMemoryError as error:
        msg = "the GPU is out of memory; give a smaller --batch-size"
        raise ResourceError(msg) from error
    steering.look(metrics)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if not steering.diverged:
        if ready.afterwards is not None:
            metrics |= ready.afterwards(trained, folder)
        # The Trainer would also save its arguments as a pickle.
        trained.save_pretrained(str(writable_folder(folder / "final")))
    value = metrics.get(ready.metric, math.nan)
    name, history = f"eval_{ready.metric}", trainer.state.log_history
    best = [log[name] for log in history if name in log] if ready.best_of_epochs else []
    return {
        "family": choice.family.name,
        "task": choice.task,
        "size": choice.model_size,
        "model": choice.source,
        "method": choice.method,
        "seed": choice.seed,
        "metric": ready.metric,
        "value": max([value, *best]),
        "last": value,
        "others": json.dumps({k: v for k, v in metrics.items() if math.isfinite(v)}),
        **counts,
        "r": choice.r,
        "components": settings.components,
        "steps": trainer.state.global_step,
        "seconds": seconds,
        "resumed": last is not None,
        "diverged": steering.diverged,
        "device": str(trainer.args.device),
    }


def _evaluate(trainer: Any, ready: Prepared) -> dict[str, float]:
    """The metrics of the trained model."""
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    metrics = {"training loss": losses[-1]} if losses else {}
    if ready.evaluation is not None:
        trainer.label_smoother = None  # smoothing is for training only
        metrics |= {
            name.removeprefix("eval_"): value
            for name, value in trainer.evaluate().items()
            if not name.endswith(_BESIDE)
        }
    if ready.value is not None:
        metrics[ready.metric] = ready.value(metrics)
    return metrics


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
    config.modules_to_save = [head] if head else None
    # A regular expression, because a name may contain dots ("to_out.0").
    config.target_modules = rf"(.*\.)?({'|'.join(map(re.escape, settings.targets))})"
    shapes = {
        (int(layer.weight.shape[0]), int(layer.weight.shape[1]))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and re.fullmatch(config.target_modules, name)
    }
    if is_plain and len(shapes) == 1:
        check(method, Budget(config.r, steps), shapes.pop(), {})
    elif not is_plain and shapes:
        p, q = min(shapes, key=lambda shape: shape[0] * shape[1])
        if config.n_frequency > p * q:
            msg = f"{method.title} cannot have {config.n_frequency} components in a {p}x{q} layer; "
            msg += f"choose 1 to {p * q} (--components)"
            raise InvalidArgumentError(msg)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about names that transformers has replaced
        return peft().get_peft_model(model, config)


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


def optimizer_groups(
    model: nn.Module, settings: Settings, head: str | None
) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser: those of the method, and the head."""
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    coefficients = {id(p) for s in spectra for p in s.parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            is_head = head is not None and head in name.split(".")
            is_decayed = p.ndim > 1 or id(p) in coefficients or "fourierft_spectrum" in name
            rate = settings.head_rate if is_head else settings.rate
            decay = settings.weight_decay if is_decayed else 0.0
            groups.setdefault((rate, decay), []).append(p)
    return [
        {"params": params, "lr": rate, "weight_decay": decay}
        for (rate, decay), params in groups.items()
    ]


def regularise(model: Any) -> None:
    """Add the gradient of AdaLoRA's regulariser; no effect for other methods.

    The mean of ‖PᵀP − 1‖ over all factors P times its weight (Zhang et al., 2023) keeps the factors
    orthogonal. PEFT adds it only if the model below its outer wrapper is called with labels, but
    the Trainer calls the wrapper, and without labels if these are smoothed. Only its gradient is
    added here, so that the reported loss is that of the task.
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
    optimizer = torch.optim.AdamW(optimizer_groups(model, settings, ready.head))
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

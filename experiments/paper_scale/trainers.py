"""The Trainer of a run, its steps and its checkpoints."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.paper_scale.adaptation import optimizer_groups
from experiments.paper_scale.loading import package
from experiments.paper_scale.prepared import Prepared
from experiments.paper_scale.settings import Settings
from loca_theory.adapters import CosineSpectrum, LoCACallback, follow
from loca_theory.errors import InvalidArgumentError, ResourceError

_LOGGED_EVERY = 10
_MOST_WORKERS = 8


def last_checkpoint(folder: Path) -> Path | None:
    """The latest complete checkpoint, that is with the Trainer's state, which is written last."""
    found = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = json.loads((path / "trainer_state.json").read_bytes())["global_step"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append((step, path))
    return max(found)[1] if found else None


def steps_of(settings: Settings, examples: int) -> int:
    """Number of training steps, counted as in the Trainer."""
    if settings.steps is not None:
        return settings.steps
    if not examples:
        msg = "the training set is empty; give data with examples"
        raise InvalidArgumentError(msg)
    passes = math.ceil(examples / settings.batch_size)
    return math.ceil(passes / settings.accumulation) * math.ceil(settings.epochs or 1)


def make_trainer(
    model: nn.Module,
    ready: Prepared,
    settings: Settings,
    folder: Path,
    *,
    seed: int,
    steps: int,
    save_every: int,
) -> tuple[Any, Any]:
    """Make the Trainer, and the callback that detects divergence."""
    transformers = package("transformers")
    from experiments.paper_scale.callbacks import (
        AllocateRanks,
        ClipGroups,
        Health,
        LossTrainer,
        Progress,
        Regularise,
    )

    arguments = transformers.TrainingArguments(
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
        dataloader_num_workers=_workers(),
    )
    if arguments.n_gpu > 1:
        msg = "several GPUs are visible, but a run uses one; set CUDA_VISIBLE_DEVICES=0"
        raise ResourceError(msg)
    health = Health()
    progress = [] if sys.stderr.isatty() else [Progress()]
    searches = [s for s in model.modules() if isinstance(s, CosineSpectrum) and s.is_searching]
    if searches:
        follow(model)
    optimizer = torch.optim.AdamW(optimizer_groups(model, settings, ready.head))
    warmup = settings.warmup if settings.warmup >= 1 else settings.warmup * steps
    rates = transformers.get_linear_schedule_with_warmup(optimizer, round(warmup), steps)
    trainer = LossTrainer(
        model,
        arguments,
        train_dataset=ready.train,
        eval_dataset=ready.evaluation,
        data_collator=ready.collate,
        compute_metrics=ready.measure,
        optimizers=(optimizer, rates),
        # Regularise comes before ClipGroups so that its gradient is clipped too.
        callbacks=[
            *([LoCACallback()] if searches else []),
            Regularise(),
            ClipGroups(),
            AllocateRanks(),
            health,
            *progress,
        ],
    )
    if ready.loss is not None:
        trainer.own_loss = ready.loss
        trainer.model_accepts_loss_kwargs = False  # makes the Trainer average over accumulation
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, health


def _workers() -> int:
    """Number of data-loading processes; 0 without a GPU, which would have to wait for them."""
    return min(os.cpu_count() or 1, _MOST_WORKERS) if torch.cuda.is_available() else 0

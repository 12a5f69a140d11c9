"""One run: train with the Trainer, evaluate and store; finished runs are never repeated."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import datasets
import torch
import transformers

from experiments.finetuning.adaptation import count
from experiments.finetuning.methods import find_method
from experiments.paper_scale import classification, diffusion, generation
from experiments.paper_scale.loading import Prepared, fingerprint
from experiments.paper_scale.settings import Choice, Settings, resolve
from experiments.paper_scale.training import adapt_as_stated, make_trainer
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

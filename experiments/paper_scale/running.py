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
import torch

from experiments.finetuning.methods import Method, find_method
from experiments.finetuning.parameters import count
from experiments.paper_scale.adaptation import adapt_as_stated
from experiments.paper_scale.loading import fingerprint, package
from experiments.paper_scale.metrics import metrics_of
from experiments.paper_scale.prepared import Paths, Prepare, Prepared
from experiments.paper_scale.settings import Choice, Settings, resolve
from experiments.paper_scale.trainers import last_checkpoint, make_trainer, steps_of
from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import is_stored, load_rows, store_rows
from loca_theory.sweeps.version import library_version

# Increase this number when the meaning of a row changes.
_VERSION = "2"
_LIBRARIES = ("transformers", "peft", "accelerate", "datasets", "diffusers")
_KEY = 12
# Columns of a row that the command prints.
_SHOWN = {
    "task", "size", "method", "seed", "diverged", "steps", "metric", "value", "trained",
}  # fmt: skip


def run(choice: Choice, paths: Paths, prepare: Prepare) -> tuple[dict[str, Any], bool]:
    """Return the stored result of a run, or compute and store it."""
    settings, method = resolve(choice), find_method(choice.method)
    described = describe(choice, settings, paths)
    content = json.dumps([choice.family.name, described, _VERSION], sort_keys=True)
    name = "-".join(
        (choice.family.name, choice.task, choice.size, choice.method, f"seed{choice.seed}",
         hashlib.sha256(content.encode()).hexdigest()[:_KEY])
    )  # fmt: skip
    stored = _stored(paths.out, name)
    if stored is not None:
        return stored, False
    _quieten()
    writable_folder(paths.out)
    folder = paths.out / name
    row = _compute(choice, settings, method, paths, prepare, folder)
    about = manifest( grid=described, seed=choice.seed, device=row["device"],
        dtype=choice.family.dtype,
    )  # fmt: skip
    about["libraries"] |= {library: library_version(library) for library in _LIBRARIES}
    store_rows([row], about, paths.out, name)
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint, ignore_errors=True)
    return row, True


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


def _quieten() -> None:
    """Silence the warnings of the libraries and, without a terminal, their progress bars."""
    transformers, datasets = package("transformers"), package("datasets")
    package("accelerate")
    transformers.logging.set_verbosity_error()
    datasets.logging.set_verbosity(logging.CRITICAL)  # errors are raised as well
    if not sys.stderr.isatty():
        transformers.logging.disable_progress_bar()
        datasets.disable_progress_bars()


def describe(choice: Choice, settings: Settings, paths: Paths) -> dict[str, Any]:
    """Everything that the result depends on, as plain data."""
    asked = {key: value for key, value in asdict(choice).items() if key != "family"}
    size = choice.family.sizes[choice.size]
    return {
        **asked,
        "settings": settings.describe(),
        "model": paths.model or size.model,
        "model_files": fingerprint(paths.model),
        "data": paths.data or choice.family.tasks[choice.task].data,
        "data_files": fingerprint(paths.data),
        **paths.extras,
    }


def _compute(
    choice: Choice,
    settings: Settings,
    method: Method,
    paths: Paths,
    prepare: Prepare,
    folder: Path,
) -> dict[str, Any]:
    package("transformers").set_seed(choice.seed)
    ready = prepare(choice, settings, paths)
    steps = steps_of(settings, len(ready.train))
    model = adapt_as_stated(
        ready.model, method, settings, head=ready.head, seed=choice.seed, steps=steps
    )
    # Count before training: at its end locations are frozen and would not count as learned.
    rank = (settings.r or settings.rank) if method.kind == "adalora" else None
    counts = count(model, ready.head, pruned_to=rank)
    trainer, health = make_trainer(
        model, ready, settings, folder,
        seed=choice.seed, steps=steps, save_every=paths.save_every,
    )  # fmt: skip
    last = last_checkpoint(folder)
    start = time.monotonic()
    try:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        seconds = time.monotonic() - start
        metrics = _evaluate(trainer, ready, health)
    except torch.OutOfMemoryError as error:
        msg = "the GPU is out of memory; give a smaller --batch-size"
        raise ResourceError(msg) from error
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if not health.diverged and ready.afterwards is not None:
        metrics |= ready.afterwards(trained, folder)
    if not health.diverged:
        # The Trainer would also save its arguments as a pickle.
        trained.save_pretrained(str(writable_folder(folder / "final")))
    value = metrics.get(ready.metric, math.nan)
    best = [log[f"eval_{ready.metric}"] for log in trainer.state.log_history
            if f"eval_{ready.metric}" in log]  # fmt: skip
    return {
        "family": choice.family.name,
        "task": choice.task,
        "size": choice.size,
        "model": paths.model or choice.family.sizes[choice.size].model,
        "method": choice.method,
        "seed": choice.seed,
        "metric": ready.metric,
        "value": max([value, *best]) if ready.best_of_epochs else value,
        "last": value,
        "others": json.dumps({k: v for k, v in metrics.items() if math.isfinite(v)}),
        **counts,
        "r": choice.r,
        "components": settings.components,
        "steps": trainer.state.global_step,
        "seconds": seconds,
        "resumed": last is not None,
        "diverged": health.diverged,
        "device": str(trainer.args.device),
    }


def _evaluate(trainer: Any, ready: Prepared, health: Any) -> dict[str, float]:
    """The metrics of the trained model; empty if it diverged."""
    if health.diverged:
        return {}
    losses = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    metrics = {"training loss": losses[-1]} if losses else {}
    if ready.evaluation is not None:
        # Label smoothing is for training only; the reported loss has none.
        trainer.label_smoother = None
        metrics |= metrics_of(trainer.evaluate())
    if ready.value is not None:
        metrics[ready.metric] = ready.value(metrics)
    health.look(metrics)
    return metrics

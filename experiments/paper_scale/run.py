"""One run: train with the Trainer, evaluate and store; finished runs are never repeated."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn

from experiments.finetuning.adaptation import (
    adapt,
    count,
    parameter_groups,
    require_peft,
    with_adapter,
)
from experiments.finetuning.methods import Budget, find_method
from experiments.paper_scale import classification, diffusion, generation
from experiments.paper_scale.prepared import PreparedRun
from experiments.paper_scale.settings import Choice, Settings, resolve
from loca_theory.adapters import CosineSpectrum, LoCACallback, LoCAConfig, follow
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import is_stored, load_rows, store_rows
from loca_theory.sweeps.version import library_version

# Increase this number when the meaning of a row changes.
_VERSION = "4"
_LIBRARIES = ("transformers", "peft", "accelerate", "datasets", "diffusers")
_LOGGED_EVERY = 50
_WORKERS = 8  # data loader workers, used with a GPU
_PREPARE = {
    "glue": classification.prepare,
    "vit": classification.prepare,
    "e2e": generation.prepare_e2e,
    "instruct": generation.prepare_instruct,
    "diffusion": diffusion.prepare,
}


def run(choice: Choice) -> tuple[dict[str, Any], bool]:
    """Return the result of a run, and whether it was computed rather than stored."""
    settings, family = resolve(choice), choice.family
    described = {**vars(choice), **asdict(settings), "family": family.name, "version": _VERSION}
    described["files"] = [*_files(choice.model), *_files(choice.data)]
    del described["out"], described["save_every"]
    content = json.dumps(described, sort_keys=True, default=str)
    parts = (family.name, choice.task, choice.model_size, choice.method, f"seed{choice.seed}")
    name = "-".join((*parts, hashlib.sha256(content.encode()).hexdigest()[:12]))
    if is_stored(choice.out, name):
        table, _ = load_rows(choice.out, name)
        return cast("dict[str, Any]", table.to_pandas().to_dict("records")[0]), False
    row = _compute(choice, settings, writable_folder(choice.out) / name)
    about = manifest(
        grid=json.loads(content), seed=choice.seed, device=row["device"], dtype=family.dtype
    )
    about["libraries"] |= {library: library_version(library) for library in _LIBRARIES}
    store_rows([row], about, choice.out, name)
    for checkpoint in (choice.out / name).glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return row, True


def _files(source: str | None) -> list[str]:
    """The files of a local folder and their times, to detect changes."""
    files = sorted(Path(source).rglob("*")) if source else []
    return [f"{file} {file.stat().st_mtime_ns}" for file in files]


def _compute(choice: Choice, settings: Settings, folder: Path) -> dict[str, Any]:
    """Train, evaluate and save the model of a run, and return its row."""
    transformers.set_seed(choice.seed)
    ready = _PREPARE[choice.family.name](choice, settings)
    model = adapted(ready.model, choice, settings)
    # Count before training: at its end locations are frozen and would not count as learned.
    counts = count(model, choice.family.head)
    trainer = make_trainer(model, ready, choice, settings, folder)
    checkpoint = _last_checkpoint(folder)
    done = _trained(trainer, checkpoint)
    metrics = _measured(trainer, ready, done["train_loss"])
    history = trainer.state.log_history
    diverged = not all(math.isfinite(loss) for log in history for loss in _losses(log))
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if not diverged:
        metrics |= ready.afterwards(trained, folder)
    # The Trainer would also save its arguments as a pickle.
    trained.save_pretrained(str(writable_folder(folder / "final")))
    last = metrics[ready.metric]
    value = _best_of_epochs(ready.metric, history) if choice.family.best_of_epochs else last
    return {
        "family": choice.family.name,
        "task": choice.task,
        "size": choice.model_size,
        "model": choice.source,
        "method": choice.method,
        "seed": choice.seed,
        "metric": ready.metric,
        "value": math.nan if diverged else value,
        "last": math.nan if diverged else last,
        "others": json.dumps({key: x for key, x in metrics.items() if math.isfinite(x)}),
        **counts,
        "r": settings.rank,
        "components": settings.components,
        "steps": trainer.state.global_step,
        "seconds": done["train_runtime"],
        "resumed": checkpoint is not None,
        "diverged": diverged,
        "device": str(trainer.args.device),
    }


def _best_of_epochs(metric: str, history: Sequence[Mapping[str, Any]]) -> float:
    name = f"eval_{metric}"
    return max(log[name] for log in history if name in log)


def _last_checkpoint(folder: Path) -> str | None:
    """The latest complete checkpoint: the Trainer writes its state last."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    last = max(states, key=lambda path: path.stat().st_mtime_ns, default=None)
    return str(last.parent) if last else None


def _trained(trainer: Any, checkpoint: str | None) -> dict[str, float]:
    """Train from a checkpoint or from the start; the loss and the time by the Trainer."""
    try:
        return trainer.train(resume_from_checkpoint=checkpoint).metrics
    except torch.OutOfMemoryError as error:
        raise ResourceError("the GPU is out of memory; give a smaller --batch-size") from error


def _measured(trainer: Any, ready: PreparedRun, train_loss: float) -> dict[str, float]:
    """Training loss and, if there is an evaluation set, the metrics on it."""
    # The last logged loss; the Trainer's mean only if none was logged, because after a resume it
    # is wrong.
    logged = (log["loss"] for log in reversed(trainer.state.log_history) if "loss" in log)
    metrics = {"training loss": next(logged, train_loss)}
    if ready.evaluation is not None:
        trainer.label_smoother = None  # smoothing is for training only
        measured = trainer.evaluate()
        metrics |= {key.removeprefix("eval_"): value for key, value in measured.items()}
        metrics["perplexity"] = float(torch.tensor(metrics["loss"]).double().exp())
    return metrics


def adapted(model: nn.Module, choice: Choice, settings: Settings) -> nn.Module:
    """Prepare a model for training with a method, with the paper's settings."""
    method, head, components = find_method(choice.method), choice.family.head, settings.components
    scaling = {} if settings.scaling is None else {"scaling": settings.scaling}
    match method.kind:
        case "lora" | "dora":
            config = require_peft().LoraConfig(
                r=settings.rank, lora_alpha=settings.scaling, use_dora=method.kind == "dora"
            )
        case "fourierft":
            # PEFT initialises the coefficients at random, as in the paper of FourierFT.
            config = require_peft().FourierFTConfig(
                n_frequency=components, random_loc_seed=choice.seed, **scaling
            )
        case "loca":
            options, steps = {**scaling, **method.options}, settings.alternating_steps
            if options.pop("endless", False):
                steps = None
            if options.pop("alternating", None) == 0.0:  # V1 learns no locations
                steps = 0
            config = LoCAConfig(
                n_frequency=max(round(method.fraction * (components or 1)), 1),
                coefficient_steps=settings.coefficient_steps,
                location_steps=settings.location_steps,
                location_lr=settings.location_rate,
                alternating_steps=steps,
                random_loc_seed=choice.seed,
                **options,
            )
        case _:
            targets = settings.targets
            return adapt(model, method, Budget(1, 1), targets=targets, head=head, seed=choice.seed)
    try:
        return with_adapter(model, config, settings.targets, head)
    except ValueError as error:  # PEFT names what does not fit
        raise InvalidArgumentError(
            f"{choice.method} does not fit {choice.source}: {error}"
        ) from error


def _losses(logs: dict[str, Any]) -> list[float]:
    return [value for name, value in logs.items() if name.endswith("loss")]


class StopWhenDiverged(transformers.TrainerCallback):
    """Ends the training where a loss is infinite or NaN."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Look at the logged loss."""
        del args, state
        control.should_training_stop |= not all(map(math.isfinite, _losses(logs or {})))


def make_trainer(
    model: nn.Module, ready: PreparedRun, choice: Choice, settings: Settings, folder: Path
) -> Any:
    """Make the Trainer with the paper's optimiser, AdamW, and its linear schedule."""
    has_gpu = torch.cuda.is_available()
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        max_steps=settings.steps or -1,
        num_train_epochs=settings.epochs or 1,
        warmup_steps=settings.warmup,
        label_smoothing_factor=settings.label_smoothing,
        seed=choice.seed,
        logging_steps=_LOGGED_EVERY,
        logging_nan_inf_filter=False,
        save_steps=choice.save_every,
        save_total_limit=1,
        eval_strategy="epoch" if choice.family.best_of_epochs else "no",
        report_to=[],
        disable_tqdm=not sys.stderr.isatty(),
        remove_unused_columns=False,
        label_names=["labels"],
        dataloader_pin_memory=has_gpu,
        dataloader_num_workers=_WORKERS if has_gpu else 0,
    )
    if arguments.n_gpu > 1:
        raise ResourceError(
            "several GPUs are visible, but a run uses one; set CUDA_VISIBLE_DEVICES=0"
        )
    callbacks: list[transformers.TrainerCallback] = [StopWhenDiverged()]
    if any(isinstance(m, CosineSpectrum) and m.is_searching for m in model.modules()):
        follow(model)  # adds the locations before the optimiser is made
        callbacks.append(LoCACallback())
    rates = {"rate": settings.rate, "head_rate": settings.head_rate}
    decay = settings.weight_decay
    parts = parameter_groups(model, head=choice.family.head, weight_decay=decay, **rates)
    trainer: Any = transformers.Trainer(
        model,
        arguments,
        train_dataset=ready.train,
        eval_dataset=ready.evaluation,
        data_collator=ready.collate,
        compute_metrics=ready.measure,
        optimizers=(torch.optim.AdamW(parts), None),
        callbacks=callbacks,
    )
    if ready.loss is not None:
        trainer.compute_loss = ready.loss
        trainer.model_accepts_loss_kwargs = False  # makes the Trainer average over accumulation
    return trainer

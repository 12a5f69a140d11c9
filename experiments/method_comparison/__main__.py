"""Train LoCA and other methods on the task ``generation``; results in the form of PEFT's benchmark.

``python -m experiments.method_comparison`` chooses the learning rate of each method as
``experiments.study comparison`` does, trains it once more with the first seed, and writes
``METHOD--generation-rank2.json`` for each. Needs ``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.finetuning.configurations import configurations
from experiments.finetuning.messages import quiet
from experiments.finetuning.options import session_command
from experiments.finetuning.protocol import Configuration, point
from experiments.finetuning.session import Session
from experiments.finetuning.tasks import load
from experiments.finetuning.training import Group
from experiments.method_comparison.records import record
from loca_theory.sweeps.files import writable_folder, write_atomically

TASK = "generation"
METHODS = ("loca", "lora", "dora", "fourierft", "waveft", "c3a", "shira")


class TimedGroup(Group):
    """A group of one run, with the duration and the memory of its steps and evaluations."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.start = time.perf_counter()
        self.durations: list[float] = []
        self.memory: list[tuple[int, int]] = []
        self.evaluations: list[tuple[float, float]] = []

    def _step(self, batch: dict[str, torch.Tensor]) -> None:
        start = time.perf_counter()
        super()._step(batch)
        cuda = torch.cuda
        used = (cuda.memory_allocated(), cuda.memory_reserved()) if cuda.is_available() else (0, 0)
        self.memory.append(used)
        self.durations.append(time.perf_counter() - start)

    def _evaluate(self, split: str, most: int | None = None) -> list[Any]:
        start = time.perf_counter()
        found = super()._evaluate(split, most)
        end = time.perf_counter()
        self.evaluations.append((end - start, end - self.start))
        return found

    def metrics(self, result: dict[str, Any]) -> list[dict[str, Any]]:
        """An entry for each evaluation during training, and one for the test set."""
        chosen = self.p["settings"]
        batch, tokens, entries, last = chosen["batch"], chosen["length"], [], 0
        evaluated = zip(result["curve"], self.evaluations[:-1], strict=True)
        for (step, loss, _, accuracy), (seconds, elapsed) in evaluated:
            trained = sum(self.durations[last:step])
            allocated, reserved = np.mean(self.memory[last:step], axis=0).tolist()
            entries.append({
                "step": step, "valid accuracy": accuracy, "train loss": loss,
                "train samples": step * batch, "train time": trained, "eval time": seconds,
                "tokens / sec": (step - last) * batch * tokens / trained,
                "mem allocated avg": allocated, "mem reserved avg": reserved,
                "elapsed time": elapsed,
            })  # fmt: skip
            last = step
        losses = self.runs[0].losses[-chosen["every"] :]
        # PEFT measures forgetting on Wikipedia; this task stores nothing of the pretraining.
        return [*entries, {
            "step": chosen["steps"], "test accuracy": result["metric"],
            "train loss": sum(losses) / len(losses), "train samples": chosen["steps"] * batch,
            "train total tokens": chosen["steps"] * batch * tokens, "forgetting": None,
        }]  # fmt: skip


def train(session: Session, configuration: Configuration, rate: float) -> dict[str, Any]:
    """Train a configuration with the first seed at a learning rate, and return its result."""
    created, start = datetime.now(UTC).replace(microsecond=0), time.perf_counter()
    prepared, device = session.prepared(TASK), torch.device(session.resolved_device)
    chosen = session.settings(TASK)
    p = point(configuration, chosen, prepared, rate=rate, seeds=[0], device=str(device)).parameters
    splits = {
        name: {key: values.to(device) for key, values in split.items()}
        for name, split in load(prepared.folder, prepared.digest)[0].items()
    }
    with torch.random.fork_rng(), quiet():
        group = TimedGroup(dict(p), prepared, splits, device)
        (result,) = group.train()
        seconds, reserved = time.perf_counter() - start, [used for _, used in group.memory]
        return record(
            group.runs[0].model,
            run={
                "created_at": created.isoformat(), "total_time": seconds,
                "experiment_name": f"{configuration.method}/{TASK}-rank{configuration.r}",
                "train_config": _train_config(chosen, rate),
                "error_msg": "the training diverged" if result["diverged"] else "",
            },
            trained={
                "accelerator_memory_reserved_avg": int(np.mean(reserved)),
                "accelerator_memory_max": max(reserved),
                "accelerator_memory_reserved_99th": int(np.percentile(reserved, 99)),
                "train_time": sum(group.durations),
                "status": "canceled" if result["diverged"] else "success",
                "metrics": group.metrics(result) if not result["diverged"] else [],
            },
            source={"task": TASK, "digest": prepared.digest},
        )  # fmt: skip


def _train_config(chosen: dict[str, Any], rate: float) -> dict[str, Any]:
    return {
        "model_id": "small transformer", "dtype": "float32", "max_seq_length": chosen["length"],
        "batch_size": chosen["batch"], "batch_size_eval": 100, "max_steps": chosen["steps"],
        "eval_steps": chosen["every"], "compile": False, "use_gc": False,
        "query_template": "{query}", "seed": 0, "grad_norm_clip": chosen["most_gradient"],
        "optimizer_type": "AdamW", "optimizer_kwargs": {"lr": rate, "weight_decay": 0.0},
        "lr_scheduler": "linear", "use_amp": False, "autocast_adapter_dtype": True,
        "generation_kwargs": {}, "attn_implementation": None, "init_kv_cache_prefix": None,
    }  # fmt: skip


@session_command
def main(session: Session) -> None:
    """Compare methods on a small task, with results in the form of PEFT's benchmark.

    Example: python -m experiments.method_comparison --quick
    """
    rates = session.tune(configurations(session, TASK, METHODS), f"method comparison, {TASK}")
    folder = session.folder / "method_comparison"
    writable_folder(folder)
    for configuration, rate in rates.items():
        result = train(session, configuration, rate)
        path = folder / f"{result['run_info']['experiment_name'].replace('/', '--')}.json"
        text = json.dumps(result, indent=2, default=str) + "\n"
        write_atomically(path, partial(Path.write_text, data=text, encoding="utf-8"))
        session.report_written([path])


if __name__ == "__main__":
    main(prog_name="python -m experiments.method_comparison")

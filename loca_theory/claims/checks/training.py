"""Printed steps, speeds and memory of the paper's own training."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from loca_theory.claims import printed
from loca_theory.claims.estimates import Returned

# Tasks other than GLUE: the table of hyper-parameters, the model, and the size of the training set,
# which the paper does not print.
_ELSEWHERE = {
    "E2E": ("e2e", "GPT-2", 42_061),
    "LLaMA-7b": ("instruction", "LLaMA-7B", 52_002),
    "LLaMA-13b": ("instruction", "LLaMA-13B", 52_002),
    "Stable Diffusion": ("diffusion", "", 5000),
}


def alternating_fraction(*, tasks: Sequence[str] = ()) -> Returned:
    """B_s over all steps of training, for each GLUE task and each size of RoBERTa.

    The steps are epochs · ⌈n/32⌉ for n training samples. For MRPC, n = 3668, these are the 5750
    steps of section 5.5.

    Args:
        tasks: The tasks; all if empty.

    Source: appendix "Hyperparameters" and the table glue_hyper.
    """
    parts = {}
    for size in ("base", "large"):
        for task in tasks or printed.GLUE_TRAINING_SETS:
            found = printed.GLUE_STEPS[task, size]
            batches = math.ceil(printed.GLUE_TRAINING_SETS[task] / printed.GLUE_BATCH)
            steps = found["alternating_steps"] / (found["epochs"] * batches)
            parts[f"{task}, {size}"] = steps
    return parts


def alternating_elsewhere(*, updates: bool = False) -> Returned:
    """B_s over all steps of training, for E2E, Alpaca with LLaMA, and Stable Diffusion.

    Args:
        updates: Whether a step of LLaMA is an update, of 4 accumulated batches, instead of a batch.

    Source: appendix "Hyperparameters" and the tables e2e_hyper, It_hyper and hyper_diffusion.
    """
    parts = {}
    for name, (table, model, samples) in _ELSEWHERE.items():
        found = printed.settings(table, model)
        steps = found.get("total_steps")
        if steps is None:
            each = found["batch_size"] * (found.get("accumulation_steps", 1) if updates else 1)
            steps = found["epochs"] * math.ceil(samples / each)
        parts[name] = found["alternating_steps"] / steps
    return parts


def memory(*, more: Sequence[str], less: Sequence[str]) -> Returned:
    """Memory of each method less that of each other one, in MB, the smallest over the models.

    Args:
        more: Methods that take more memory: ``LoRA``, ``FourierFT``, ``LoCA-1``, sparse,
            ``LoCA-2``, by FFT, or ``LoCA-3``, by matrices, the default.
        less: Methods that take less.

    Source: the table complexity, and the sentence on memory below it.
    """
    return {
        f"{a} less {b}": min(x - y for x, y in _measured(printed.MEMORY, a, b))
        for a in more
        for b in less
    }


def speed(*, forms: Sequence[str]) -> Returned:
    """Log ratio of LoRA's speed and FourierFT's, less that of LoCA's and FourierFT's.

    Both ratios are taken as at least 1. The table has no errors of speeds, so LoRA's lead, which
    the paper calls slight, is the scale of what is close. There is one estimate per form, the
    smallest over the models.

    Args:
        forms: Forms of LoCA, as for :func:`memory`.

    Source: the table complexity, and the sentence on speeds below it.
    """
    parts = {}
    for form in forms:
        speeds = _measured(printed.SPEEDS, form, "LoRA", "FourierFT")
        gaps = [abs(math.log(lora / b)) - abs(math.log(loca / b)) for loca, lora, b in speeds]
        parts[form] = min(gaps)
    return parts


def _measured(
    values: Mapping[str, Mapping[str, float]], *methods: str
) -> Iterator[tuple[float, ...]]:
    """Values of some methods, model by model; without the models on which one is not measured."""
    for model in values[methods[0]]:
        if all(model in values[name] for name in methods):
            yield tuple(float(values[name][model]) for name in methods)

"""The error of extracted adapters in a model that PEFT has loaded them into."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.stored import has_adapters
from loca_theory.checkpoints.change.opening import adapter_folder, open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.extraction.identical import count_identical
from loca_theory.checkpoints.extraction.loading import built, with_adapter, with_merged_adapter
from loca_theory.checkpoints.extraction.outputs import (
    OutputRow,
    compared,
    outputs_of,
    read_inputs,
    relative_error,
    surviving_energy,
)
from loca_theory.checkpoints.extraction.rows import ExtractedMatrix
from loca_theory.checkpoints.form.folder import write_adapter
from loca_theory.checkpoints.source.open import Source
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder

# A weight of the fine-tune and of the base, by its name in the model.
_Weights = Callable[[str], tuple[torch.Tensor, torch.Tensor]]


def verified(
    extraction: Any, model: torch.nn.Module | None, inputs: Any, bits: int | None
) -> tuple[tuple[ExtractedMatrix, ...], tuple[OutputRow, ...]]:
    """The rows of an extraction with the errors of the loaded weights, and what outputs differ by.

    The model is that of the base, which is loaded if it is not given, with all the adapters.
    """
    sources = extraction.sources or extraction.manifest["grid"]
    base, tuned = sources["base"], sources["finetuned"]
    inputs = read_inputs(inputs, base, tuned)
    adapted, tuned_model, weights = _sides(base, tuned, model, with_outputs=inputs is not None)
    # Of the fine-tune, the base and the adapter; none without inputs.
    outputs = []
    if inputs is not None:
        outputs = [outputs_of(tuned_model(), inputs), outputs_of(adapted, inputs)]
    with tempfile.TemporaryDirectory() as temporary:
        for method, adapter in extraction.adapters.items():
            path = writable_folder(Path(temporary) / method)
            write_adapter(path, adapter, card="")
            adapted = with_adapter(adapted, path)
            outputs[2:] = [outputs_of(adapted, inputs)] if outputs else []
            adapted = with_merged_adapter(adapted)
        identical = count_identical(extraction.matrices, temporary, base, tuned, model)
    after_merge = adapted.state_dict()
    rows = []
    for row in extraction.matrices:
        goal, start = weights(row.name)
        after = after_merge[row.name]
        left = None if bits is None else surviving_energy(start, after, bits)
        error = relative_error(goal.double(), start.double(), after.double())
        counted = identical.get(row.name, {})
        rows.append(replace(row, loaded_error=error, surviving_energy=left, **counted))
    named = zip(("base", "adapter"), outputs[1:], strict=False)
    compared_rows = [compared(name, outputs[0], outputs[1], output) for name, output in named]
    return tuple(rows), tuple(compared_rows)


def _sides(
    base: Source, tuned: Source, model: torch.nn.Module | None, *, with_outputs: bool
) -> tuple[torch.nn.Module, Callable[[], torch.nn.Module], _Weights]:
    """The base as a model, what makes the fine-tune as one, and the weights of both.

    The fine-tune has full weights, or is an adapter, which PEFT loads as well.
    """
    if has_adapters(tuned):
        raise InvalidArgumentError(
            "an adapter in memory cannot be checked; save it and pass its folder"
        )
    folder, selection = adapter_folder(tuned), MatrixSelection().of_extraction()
    full = tuned if folder is None else base
    pair = open_pair(base, full, selection, model)
    loaded = pair.model
    if not loaded.is_known or pair.base is None:
        raise InvalidArgumentError(
            f"the model is not known ({loaded.unknown}); pass it as model=..."
        )
    first, second = pair.base, pair.tuned
    for side in (first, second) if with_outputs and folder is None else ():
        if missing := sorted(loaded.shapes.keys() - side.entries.keys()):
            raise InvalidArgumentError(
                f"a checkpoint has no {missing[0]}, so that outputs would be random; pass no inputs"
            )
    start = built(loaded, base if model is None else model, first)
    if folder is not None:
        goal = with_merged_adapter(with_adapter(copy.deepcopy(start), folder))
        after = goal.state_dict()
        # A copy, because PEFT merges in place.
        before = {name: value.clone() for name, value in start.state_dict().items()}
        return start, lambda: goal, lambda name: (after[name], before[name])
    tuned_model = partial(built, loaded, tuned, second)
    return start, tuned_model, lambda name: (second.load(name), first.load(name))

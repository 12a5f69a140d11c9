"""The error of extracted adapters in a model that PEFT has loaded them into."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.peft import peft_package
from loca_theory.checkpoints.change.adapter.stored import has_adapters
from loca_theory.checkpoints.change.opening import adapter_folder, open_pair
from loca_theory.checkpoints.change.selection import Selection
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
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint, any_error_as
from loca_theory.checkpoints.source.memory import unwrapped
from loca_theory.checkpoints.source.open import Source, is_path, resolve
from loca_theory.errors import InvalidArgumentError, ResourceError
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
            adapted = _with_adapter(adapted, path)
            outputs[2:] = [outputs_of(adapted, inputs)] if outputs else []
            adapted = _merged(adapted)
    merged = adapted.state_dict()
    rows = []
    for row in extraction.matrices:
        goal, start = weights(row.name)
        after = merged[row.name]
        left = None if bits is None else surviving_energy(start, after, bits)
        error = relative_error(goal.double(), start.double(), after.double())
        rows.append(replace(row, loaded_error=error, surviving_energy=left))
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
        msg = "an adapter in memory cannot be checked; save it and pass its folder"
        raise InvalidArgumentError(msg)
    folder, selection = adapter_folder(tuned), Selection().of_extraction()
    full = tuned if folder is None else base
    pair = open_pair(base, full, selection, model)
    loaded = pair.model
    if not loaded.is_known or pair.base is None:
        msg = f"the model is not known ({loaded.unknown}); pass it as model=..."
        raise InvalidArgumentError(msg)
    first, second = pair.base, pair.tuned
    for side in (first, second) if with_outputs and folder is None else ():
        if missing := sorted(loaded.shapes.keys() - side.entries.keys()):
            msg = f"a checkpoint has no {missing[0]}, so that outputs would be random; pass "
            raise InvalidArgumentError(msg + "no inputs")
    built = _built(loaded, base if model is None else model, first)
    if folder is not None:
        goal = _merged(_with_adapter(copy.deepcopy(built), folder))
        after = goal.state_dict()
        # A copy, because PEFT merges in place.
        before = {name: value.clone() for name, value in built.state_dict().items()}
        return built, lambda: goal, lambda name: (after[name], before[name])
    tuned_model = partial(_built, loaded, tuned, second)
    return built, tuned_model, lambda name: (second.load(name), first.load(name))


def _built(loaded: Model, source: Source, tensors: Checkpoint) -> torch.nn.Module:
    """The model with the weights of a source, in float32, by transformers' own loading if it can.

    A module of its class has its weights already, and is copied if that is possible.
    """
    kind: Any = type(loaded.module)
    module: Any = unwrapped(source) if isinstance(source, torch.nn.Module) else None
    if type(module) is kind:
        with suppress(Exception):
            return copy.deepcopy(module).float().eval()
    settings = getattr(loaded.module, "config", None)
    if settings is None and type(module) is kind:
        msg = f"{kind.__name__} cannot be copied, to load the adapter into the copy; leave the "
        raise InvalidArgumentError(msg + "check out")
    if settings is None:
        msg = f"{kind.__name__} cannot be built from its class alone; pass it as model=..., with "
        raise InvalidArgumentError(msg + "the weights of the base")
    rows = _other_vocabulary(loaded, tensors)
    settings = copy.deepcopy(settings)
    if rows is not None:
        settings.get_text_config().vocab_size = rows[0]
    failure = f"transformers cannot load the weights into {kind.__name__}"
    with any_error_as(ResourceError, failure), warnings.catch_warnings(action="ignore"):
        # Without its config.json, transformers fails to load a folder.
        if is_path(source) and ((folder := resolve(source)) / "config.json").is_file():
            with _quiet_transformers():
                built = kind.from_pretrained(folder, config=settings, dtype=torch.float32)
        else:
            built = kind(settings)
            weights = {name: tensors.load(name).float() for name in tensors.entries}
            for name in built.load_state_dict(weights, strict=False).unexpected_keys:
                path, _, leaf = name.rpartition(".")  # torch finds the parts of this weight
                setattr(built.get_submodule(path), leaf, weights[name])
        if rows is not None:
            built.resize_token_embeddings(rows[1], mean_resizing=False)
    return built.eval()


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without a progress bar, and without a report that shows names as they are."""
    from transformers.utils import logging

    level, has_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bar:
            logging.enable_progress_bar()


def _other_vocabulary(loaded: Model, tensors: Checkpoint) -> tuple[int, int] | None:
    """Rows of the embedding of a checkpoint and of the model, if the model has more or fewer."""
    model: Any = loaded.module
    embedding = None
    with suppress(AttributeError, NotImplementedError):  # a model without words
        embedding = model.get_input_embeddings()
    for name, module in loaded.modules.items():
        entry = tensors.entries.get(f"{name}.weight")
        if module is embedding and entry is not None:
            stored, expected = entry.shape[0], loaded.shapes[f"{name}.weight"][0]
            return None if stored == expected else (stored, expected)
    return None


def _merged(model: Any) -> torch.nn.Module:
    """The model with its adapter added to the weights."""
    with warnings.catch_warnings(action="ignore"):
        return model.merge_and_unload()


def _with_adapter(model: torch.nn.Module, folder: Path) -> Any:
    """The model with an adapter in it, as PEFT loads it."""
    peft = peft_package()
    failure = f"PEFT cannot load the adapter into {type(model).__name__}"
    # PEFT warns of parameters that the file lacks, which show in the errors.
    with any_error_as(ResourceError, failure), warnings.catch_warnings(action="ignore"):
        return peft.PeftModel.from_pretrained(model, folder).eval()

"""Models with the weights of a source, and adapters in them, as PEFT loads and merges them."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.peft import peft_package
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint, any_error_as
from loca_theory.checkpoints.source.memory import unwrapped
from loca_theory.checkpoints.source.open import Source, is_path, resolve
from loca_theory.errors import InvalidArgumentError, ResourceError


def built(
    loaded: Model, source: Source, tensors: Checkpoint, dtype: torch.dtype = torch.float32
) -> torch.nn.Module:
    """The model with the weights of a source in a type, by transformers' own loading if it can.

    A module of its class has its weights already, and is copied if that is possible.
    """
    kind: Any = type(loaded.module)
    module: Any = unwrapped(source) if isinstance(source, torch.nn.Module) else None
    if type(module) is kind:
        with suppress(Exception):
            return copy.deepcopy(module).to(dtype).eval()
    settings = getattr(loaded.module, "config", None)
    if settings is None and type(module) is kind:
        raise InvalidArgumentError(
            f"{kind.__name__} cannot be copied, to load the adapter into the copy; leave the "
            "check out"
        )
    if settings is None:
        raise InvalidArgumentError(
            f"{kind.__name__} cannot be built from its class alone; pass it as model=..., with "
            "the weights of the base"
        )
    rows = _other_vocabulary(loaded, tensors)
    settings = copy.deepcopy(settings)
    if rows is not None:
        settings.get_text_config().vocab_size = rows[0]
    failure = f"transformers cannot load the weights into {kind.__name__}"
    with any_error_as(ResourceError, failure), warnings.catch_warnings(action="ignore"):
        # Without its config.json, transformers fails to load a folder.
        if is_path(source) and ((folder := resolve(source)) / "config.json").is_file():
            with _quiet_transformers():
                model = kind.from_pretrained(folder, config=settings, dtype=dtype)
        else:
            model = kind(settings).to(dtype)
            weights = {name: tensors.load(name).to(dtype) for name in tensors.entries}
            for name in model.load_state_dict(weights, strict=False).unexpected_keys:
                path, _, leaf = name.rpartition(".")  # torch finds the parts of this weight
                setattr(model.get_submodule(path), leaf, weights[name])
        if rows is not None:
            model.resize_token_embeddings(rows[1], mean_resizing=False)
    return model.eval()


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


def with_merged_adapter(model: Any, *, safe: bool = False) -> torch.nn.Module:
    """The model with its adapter added to the weights; safe, ΔW is rounded to their type first."""
    with warnings.catch_warnings(action="ignore"):
        return model.merge_and_unload(safe_merge=safe)


def with_adapter(model: torch.nn.Module, folder: Path, *, wide: bool = True) -> Any:
    """The model with an adapter in it, as PEFT loads it: widened to float32, or in its type."""
    peft = peft_package()
    failure = f"PEFT cannot load the adapter into {type(model).__name__}"
    # PEFT warns of parameters that the file lacks, which show in the errors.
    with any_error_as(ResourceError, failure), warnings.catch_warnings(action="ignore"):
        return peft.PeftModel.from_pretrained(model, folder, autocast_adapter_dtype=wide).eval()

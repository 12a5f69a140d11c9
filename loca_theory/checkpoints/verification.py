"""The error of extracted adapters in a model that PEFT has loaded them into."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.model_pair import open_model_pair
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.sizing.adapter_folder import Adapter, write_adapter
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, one_line
from loca_theory.checkpoints.weights.sources import Source, is_path, resolve
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder


def loaded_errors(
    base: Source,
    tuned: Source,
    adapters: Mapping[str, Adapter],
    names: Iterable[str],
    model: torch.nn.Module | None,
    inputs: Any,
) -> tuple[dict[str, float], float | None]:
    """Relative squared errors of weights and outputs in a model that PEFT has loaded.

    The model is that of the base, which is loaded if it is not given, with all the adapters.
    """
    everything = Selection(smallest_side=1, experts="stacked")
    pair, loaded, unchecked = open_model_pair(base, tuned, everything, model)
    if loaded is None or pair.base is None:
        msg = f"the model is not known ({unchecked}); pass it as model=..."
        raise InvalidArgumentError(msg)
    adapted = _built(loaded, base, pair.base, model)
    outputs = []
    if inputs is not None:
        for side in (pair.base, pair.tuned):
            if missing := sorted(loaded.shapes.keys() - side.entries.keys()):
                msg = f"a checkpoint has no {missing[0]}, so that outputs would be random; pass "
                raise InvalidArgumentError(msg + "no inputs")
        outputs = [_output(_built(loaded, tuned, pair.tuned), inputs), _output(adapted, inputs)]
    with tempfile.TemporaryDirectory() as folder:
        for method, adapter in adapters.items():
            path = writable_folder(Path(folder) / method)
            write_adapter(path, adapter, card="")
            adapted = _with_adapter(adapted, path)
            if inputs is not None:
                outputs[2:] = [_output(adapted, inputs)]
            with warnings.catch_warnings(action="ignore"):
                adapted = adapted.merge_and_unload()
    after = adapted.state_dict()
    errors = {
        name: _error(pair.tuned.load(name), pair.base.load(name), after[name]) for name in names
    }
    return errors, _error(*outputs) if outputs else None


def _error(goal: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> float:
    """Squared distance from the goal, in units of that before."""
    goal = goal.double()
    change = float((goal - before.double()).square().sum())
    return float((goal - after.double()).square().sum()) / change if change else 0.0


def _built(
    loaded: LoadedModel,
    source: Source,
    tensors: Checkpoint,
    given: torch.nn.Module | None = None,
) -> torch.nn.Module:
    """The model with the weights of a source, in float32, by transformers' own loading if it can.

    A module that was given has its weights already.
    """
    if given is not None:
        return copy.deepcopy(given).float().eval()
    kind: Any = type(loaded.module)
    if isinstance(source, torch.nn.Module) and type(source) is kind:
        return copy.deepcopy(source).float().eval()
    settings = getattr(loaded.module, "config", None)
    if settings is None:
        msg = f"{kind.__name__} cannot be built from its class alone; pass it as model=..., with "
        raise InvalidArgumentError(msg + "the weights of the base")
    with warnings.catch_warnings(action="ignore"):
        if is_path(source) and (folder := resolve(source)).is_dir():
            return kind.from_pretrained(folder, config=settings, dtype=torch.float32).eval()
        made = kind(settings)
        weights = {name: tensors.load(name).float() for name in tensors.entries}
        made.load_state_dict(weights, strict=False)
    return made.eval()


def _with_adapter(model: torch.nn.Module, folder: Path) -> Any:
    """The model with an adapter in it, as PEFT loads it."""
    try:
        import peft

        import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
    except ImportError as error:
        msg = "checking an adapter needs PEFT: pip install 'loca-theory[adapters]'"
        raise ResourceError(msg) from error
    try:
        # What does not fit shows in the errors.
        with warnings.catch_warnings(action="ignore"):
            return peft.PeftModel.from_pretrained(model, folder).eval()  # pyright: ignore[reportArgumentType]
    except Exception as error:
        # PEFT reports what does not fit the model by exceptions of any type.
        msg = f"PEFT cannot load the adapter into {type(model).__name__}: {one_line(error)}"
        raise ResourceError(msg) from error


def _output(model: torch.nn.Module, inputs: Any) -> torch.Tensor:
    """The logits of a model, or its first output."""
    try:
        with torch.no_grad():
            if isinstance(inputs, Mapping):
                found = model(**inputs)
            else:
                found = model(*inputs) if isinstance(inputs, tuple | list) else model(inputs)
    except Exception as error:
        # A model reports inputs that do not suit it by exceptions of any type.
        msg = f"{type(model).__name__} does not run on these inputs: {one_line(error)}"
        raise InvalidArgumentError(msg) from error
    found = getattr(found, "logits", found)
    return (found if isinstance(found, torch.Tensor) else found[0]).clone()

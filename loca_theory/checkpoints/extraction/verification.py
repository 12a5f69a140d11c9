"""The error of extracted adapters in a model that PEFT has loaded them into."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.extraction.outputs import OutputRow, compared, outputs_of
from loca_theory.checkpoints.extraction.requantised import surviving_energy
from loca_theory.checkpoints.pairs.as_loaded import AsLoaded
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel, UnknownModelError
from loca_theory.checkpoints.pairs.model_pair import open_model_pair
from loca_theory.checkpoints.pairs.opening import adapter_folder
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.sizing.adapter_folder import Adapter, peft_package, write_adapter
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, one_line
from loca_theory.checkpoints.weights.sources import Source, is_path, open_checkpoint, resolve
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.files import writable_folder


@dataclass(frozen=True)
class _Sides:
    """The base and the fine-tune as models.

    Attributes:
        base: The model with the weights of the base.
        tuned: Makes the model with the weights of the fine-tune.
        weights: The weights of the fine-tune and of the base, by name.
    """

    base: torch.nn.Module
    tuned: Callable[[], torch.nn.Module]
    weights: Callable[[str], tuple[torch.Tensor, torch.Tensor]]


def loaded_errors(
    base: Source,
    tuned: Source,
    adapters: Mapping[str, Adapter],
    names: Iterable[str],
    model: torch.nn.Module | None,
    inputs: Any,
    bits: int | None,
) -> tuple[dict[str, tuple[float, float | None]], tuple[OutputRow, ...]]:
    """Relative squared errors of weights, what of them survives, and what outputs differ by.

    The model is that of the base, which is loaded if it is not given, with all the adapters.
    """
    folder = adapter_folder(tuned)
    sides = (
        _with_full_weights(base, tuned, model, with_outputs=inputs is not None)
        if folder is None
        else _with_first_adapter(base, folder, model)
    )
    adapted, before, goal, after = sides.base, None, None, None
    if inputs is not None:
        before, goal = outputs_of(adapted, inputs), outputs_of(sides.tuned(), inputs)
    with tempfile.TemporaryDirectory() as temporary:
        for method, adapter in adapters.items():
            path = writable_folder(Path(temporary) / method)
            write_adapter(path, adapter, card="")
            adapted = _with_adapter(adapted, path)
            after = None if goal is None else outputs_of(adapted, inputs)
            adapted = _merged(adapted)
    merged = adapted.state_dict()
    errors: dict[str, tuple[float, float | None]] = {}
    for name in names:
        goal_of, start = sides.weights(name)
        left = None if bits is None else surviving_energy(start, merged[name], bits)
        errors[name] = _error(goal_of, start, merged[name]), left
    if goal is None or before is None or after is None:
        return errors, ()
    return errors, (
        compared("base", goal, before, before),
        compared("adapter", goal, before, after),
    )


def _with_full_weights(
    base: Source, tuned: Source, model: torch.nn.Module | None, *, with_outputs: bool
) -> _Sides:
    """The base and a fine-tune with full weights."""
    everything = Selection(smallest_side=1, experts="stacked")
    pair, loaded, unchecked = open_model_pair(base, tuned, everything, model)
    if loaded is None or pair.base is None:
        msg = f"the model is not known ({unchecked}); pass it as model=..."
        raise InvalidArgumentError(msg)
    first, second = pair.base, pair.tuned
    for side in (first, second) if with_outputs else ():
        if missing := sorted(loaded.shapes.keys() - side.entries.keys()):
            msg = f"a checkpoint has no {missing[0]}, so that outputs would be random; pass "
            raise InvalidArgumentError(msg + "no inputs")
    return _Sides(
        _built(loaded, base, first, model),
        lambda: _built(loaded, tuned, second),
        lambda name: (second.load(name), first.load(name)),
    )


def _with_first_adapter(base: Source, folder: Path, model: torch.nn.Module | None) -> _Sides:
    """The base, and with another adapter, which PEFT loads as well."""
    if model is None and isinstance(base, torch.nn.Module):
        model = base
    if model is None:
        side = open_checkpoint(base)
        try:
            loaded = LoadedModel.of_config(side.config, tensors=len(side.entries))
        except UnknownModelError as error:
            msg = f"the model is not known ({error}); pass it as model=..."
            raise InvalidArgumentError(msg) from error
        built = _built(loaded, base, AsLoaded(side, loaded))
    else:
        built = copy.deepcopy(model).float().eval()
    goal = _merged(_with_adapter(copy.deepcopy(built), folder))
    second = goal.state_dict()
    # A copy, because PEFT merges in place.
    first = {name: value.clone() for name, value in built.state_dict().items()}
    return _Sides(built, lambda: goal, lambda name: (second[name], first[name]))


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
    rows = _other_vocabulary(loaded, tensors)
    settings = copy.deepcopy(settings)
    if rows is not None:
        settings.get_text_config().vocab_size = rows[0]
    with warnings.catch_warnings(action="ignore"):
        if is_path(source) and (folder := resolve(source)).is_dir():
            made = kind.from_pretrained(folder, config=settings, dtype=torch.float32)
        else:
            made = kind(settings)
            weights = {name: tensors.load(name).float() for name in tensors.entries}
            made.load_state_dict(weights, strict=False)
        if rows is not None:
            made.resize_token_embeddings(rows[1], mean_resizing=False)
    return made.eval()


def _other_vocabulary(loaded: LoadedModel, tensors: Checkpoint) -> tuple[int, int] | None:
    """Rows of the embedding of a checkpoint and of the model, if the model has more or fewer."""
    name = next((name for name in tensors.entries if _is_embedding(loaded, name)), None)
    if name is None:
        return None
    own, wanted = tensors.entries[name].shape[0], loaded.shapes[name][0]
    return None if own == wanted else (own, wanted)


def _is_embedding(loaded: LoadedModel, name: str) -> bool:
    find: Any = getattr(loaded.module, "get_input_embeddings", None)
    module = loaded.modules.get(name.removesuffix(".weight"))
    return find is not None and module is not None and module is find()


def _merged(model: Any) -> torch.nn.Module:
    """The model with its adapter added to the weights."""
    with warnings.catch_warnings(action="ignore"):
        return model.merge_and_unload()


def _with_adapter(model: torch.nn.Module, folder: Path) -> Any:
    """The model with an adapter in it, as PEFT loads it."""
    peft = peft_package()
    try:
        # What does not fit shows in the errors.
        with warnings.catch_warnings(action="ignore"):
            return peft.PeftModel.from_pretrained(model, folder).eval()
    except Exception as error:
        # PEFT reports what does not fit the model by exceptions of any type.
        msg = f"PEFT cannot load the adapter into {type(model).__name__}: {one_line(error)}"
        raise ResourceError(msg) from error

"""A checkpoint as its model has it after loading: under its names, and in its parts.

transformers renames weights when it loads them, and makes some from several stored ones or from a
part of one. This module alone uses its interfaces for that, which are young: where this version of
transformers lacks them, names stay those of the file.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from loca_theory.checkpoints.pairs.loaded_model import LoadedModel, UnknownModelError
from loca_theory.checkpoints.weights.checkpoint import (
    Checkpoint,
    DamagedError,
    Entry,
    LeftOutError,
    any_error_as,
)
from loca_theory.checkpoints.weights.layouts import match_names

# A model that has fewer of the tensors of a checkpoint is another one.
_LEAST = 0.5


@dataclass(frozen=True)
class Conversion:
    """What makes parameters of a model from stored tensors.

    Attributes:
        converter: The rule of transformers.
        first: Name of the first parameter that it makes.
        sources: The pattern of the rule that each stored tensor matches, by its name.
    """

    converter: Any
    first: str
    sources: dict[str, str] = field(default_factory=dict)

    def run(
        self, tensors: Mapping[str, torch.Tensor], model: torch.nn.Module
    ) -> dict[str, torch.Tensor]:
        """Make the parameters from tensors by their stored names."""
        converter = copy.deepcopy(self.converter)
        for name, pattern in self.sources.items():
            converter.add_tensor(self.first, name, pattern, tensors[name])
        with any_error_as(DamagedError, "transformers cannot convert it"):
            made = converter.convert(self.first, model=model, config=model.config)
        return {name: one[0] if isinstance(one, list) else one for name, one in made.items()}


@dataclass
class AsLoaded(Checkpoint):
    """A checkpoint under the names of a model's parameters.

    A tensor that the model does not have, or not in this shape, is ignored. A parameter that is
    tied to another one is there too.

    Args:
        source: The checkpoint.
        model: The model that it is loaded into.
    """

    source: Checkpoint
    model: LoadedModel
    sources: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)
    _conversions: dict[str, Conversion] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.source.config
        names, conversions = _renamed(self.source.names, self.model)
        for name, loaded in names.items():
            if name in self.source.left_out:
                self.left_out[loaded] = self.source.left_out[name]
            elif loaded not in self.model.shapes:
                self.leave_out(name, f"not a parameter of {self.model.title}")
            else:
                # A tensor that others are tied to comes before them.
                entry = self.source.entries[name]
                owner = names.get(entry.tied_to or "", "")
                tied_to = owner if owner in self.entries else None
                self.entries[loaded] = replace(entry, tied_to=tied_to)
                self.sources[loaded] = (name,)
        for one in conversions:
            self._add_converted(one)
        self._add_ties()
        in_order = (name for name in self.model.shapes if name in self.entries)
        self.entries = {name: self.entries[name] for name in in_order}

    def __getstate__(self) -> dict[str, Any]:
        # A worker needs the model only to convert.
        state = dict(self.__dict__)
        return state if self._conversions else {**state, "model": None}

    @property
    def renamed(self) -> dict[str, str]:
        """The model's name of each stored tensor that it has in this form."""
        return {
            made[0]: own
            for own, made in self.sources.items()
            if own not in self._conversions and self.entries[own].tied_to is None
        }

    def _add_converted(self, one: Conversion) -> None:
        try:
            entries = {name: self.source.entry(name) for name in one.sources}
            empty = {name: torch.empty(one.shape, device="meta") for name, one in entries.items()}
            made = one.run(empty, self.model.module)
        except (LeftOutError, DamagedError) as error:
            self.leave_out(one.first, str(error), damaged=error.damaged)
            return
        stored = list(entries.values())
        dtype, is_computed = stored[0].dtype, any(one.is_computed for one in stored)
        for name, tensor in made.items():
            if name not in self.model.shapes:
                self.leave_out(name, f"not a parameter of {self.model.title}")
                continue
            self.entries[name] = Entry(tuple(tensor.shape), dtype, None, is_computed)
            self.sources[name], self._conversions[name] = tuple(entries), one

    def _add_ties(self) -> None:
        """Add the other names of each tied parameter that is stored once."""
        for name in list(self.entries):
            for other in self.model.ties.get(name, ()):
                if other not in self.entries and other not in self.left_out:
                    self.entries[other] = replace(self.entries[name], tied_to=name)
                    self.sources[other] = self.sources[name]

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        name = self.entries[name].tied_to or name
        if name not in self._conversions:
            return self.source.load(self.sources[name][0], expert)
        tensors = {own: self.source.load(own) for own in self.sources[name]}
        return self._conversions[name].run(tensors, self.model.module)[name]

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the stored tensors that a tensor is made of; see :class:`Checkpoint`."""
        name = self.entries[name].tied_to or name
        for own in self.sources[name]:
            yield from self.source.stored(own, None if name in self._conversions else expert)


def as_loaded(
    tuned: Checkpoint, base: Checkpoint, module: torch.nn.Module | None = None
) -> tuple[Checkpoint, Checkpoint, LoadedModel | None, str | None]:
    """A fine-tune and its base as a model has them after loading, and this model.

    It is the module; by default the first which has their tensors of the two modules that they come
    from, or that their configurations describe. If none has, both are as they are stored, and the
    last value says why.
    """
    likes = [one.config if one.module is None else one.module for one in (tuned, base)]
    reasons = []
    for like in likes if module is None else [module]:
        try:
            if isinstance(like, Mapping):
                model = LoadedModel.of_config(like, tensors=len(tuned.entries))
            else:
                model = LoadedModel.of_module(like)
            views = AsLoaded(tuned, model), AsLoaded(base, model)
            _check_is_loaded(views[0], "base" if tuned is base else "fine-tuned")
            _check_is_loaded(views[1], "base")
        except UnknownModelError as error:
            reasons.append(str(error))
        else:
            return *views, model, model.unchecked
    return tuned, base, None, reasons[0]


def _check_is_loaded(view: AsLoaded, side: str) -> None:
    """Refuse a model that has few of the tensors of a checkpoint."""
    shapes = view.model.shapes
    fitting = (name for name, own in view.entries.items() if shapes[name] == own.shape)
    stored = {name for own in fitting for name in view.sources[own]}
    fraction = len(stored) / max(1, len(view.source.entries))
    if fraction < _LEAST:
        msg = f"{view.model.title} is not the model of the {side} checkpoint: it has only "
        msg += f"{fraction:.0%} of the tensors by name and shape"
        raise UnknownModelError(msg)


def _renamed(names: list[str], model: LoadedModel) -> tuple[dict[str, str], list[Conversion]]:
    """The parameter that each stored tensor becomes, and those that are made otherwise.

    Without rules of transformers, names may differ by a prefix.
    """
    module, shapes = model.module, model.shapes
    try:
        prefix: Any = module.base_model_prefix
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            dot_natural_key,
            rename_source_key,
        )
    except (AttributeError, ImportError):  # no model of transformers, or an older version of it
        partners, _ = match_names(names, shapes)
        return {name: partners.get(name, name) for name in names}, []
    with any_error_as(UnknownModelError, "transformers cannot read the configuration"):
        rules = get_model_conversion_mapping(module)  # pyright: ignore[reportArgumentType]
    renamings = [one for one in rules if isinstance(one, WeightRenaming)]
    converters = [one for one in rules if isinstance(one, WeightConverter)]
    by_pattern = {pattern: one for one in converters for pattern in one.source_patterns}
    found: dict[str, str] = {}
    conversions: dict[str, Conversion] = {}
    state = dict.fromkeys(shapes, True)
    # Its order of names fails at a superscript number, or at a very long one.
    with any_error_as(UnknownModelError, "transformers cannot read the names of the tensors"):
        for name in sorted(names, key=dot_natural_key):
            own, pattern = rename_source_key(name, renamings, converters, prefix, state)
            if own not in shapes and name in shapes:
                own, pattern = rename_source_key(name, [], [], prefix, state)
            if pattern is None or own not in shapes:
                found[name] = own
            else:
                one = conversions.setdefault(own, Conversion(by_pattern[pattern], own))
                one.sources[name] = pattern
    return found, list(conversions.values())

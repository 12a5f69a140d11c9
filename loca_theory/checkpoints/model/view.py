"""A checkpoint as its model has it after loading: under its names, and in its parts.

transformers renames weights when it loads them, and makes some from several stored ones or from a
part of one. This module alone uses its interfaces for that, which are young: where this version of
transformers lacks them, names are matched by their ends.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from loca_theory.checkpoints.model.layouts import (
    has_conv1d_name,
    stores_transposed,
    tied_weight,
)
from loca_theory.checkpoints.model.matching import (
    AmbiguousError,
    NameMatch,
    Partners,
    match_names,
    plain_name,
)
from loca_theory.checkpoints.model.model import Model, UnknownModelError
from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    Entry,
    LeftOutError,
    any_error_as,
    unwrapped,
)
from loca_theory.errors import InvalidArgumentError

# A model that has fewer of the tensors of a checkpoint is another one.
_LEAST = 0.5
# Matrices by which the values of two checkpoints are compared.
_COMPARED = 8


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
        for name, tensor in tensors.items():
            converter.add_tensor(self.first, name, self.sources[name], tensor)
        with any_error_as(DamagedError, "transformers cannot convert it"):
            made = converter.convert(self.first, model=model, config=model.config)
        return {
            name: tensor[0] if isinstance(tensor, list) else tensor for name, tensor in made.items()
        }

    def of_expert(self, expert: int) -> list[str]:
        """The stored tensors of one expert: the one of this number that matches each pattern."""
        by_pattern: dict[str, list[str]] = {}
        for name, pattern in self.sources.items():
            by_pattern.setdefault(pattern, []).append(name)
        return [names[expert] for names in by_pattern.values()]

    @property
    def is_by_expert(self) -> bool:
        """Whether each expert's part of the parameter is made of that expert's tensors alone."""
        first, *others = [(type(step).__name__, vars(step)) for step in self.converter.operations]
        return first == ("MergeModulelist", {"dim": 0}) and all(
            (kind == "Concatenate" and settings["dim"] != 0)
            or (kind == "Transpose" and 0 not in (settings["dim0"], settings["dim1"]))
            for kind, settings in others
        )


@dataclass
class View(Checkpoint):
    """A checkpoint under the names of a model's parameters.

    A tensor that the model does not have, or not in this shape, is ignored. A parameter that is
    tied to another one is there too.

    Args:
        source: The checkpoint.
        model: The model that it is loaded into.
        renamed: The model's name of each stored tensor.
        conversions: What makes other parameters.
        prefix: Prefix that the stored names of only one side have; usually "".

    Attributes:
        sources: The stored tensors that each parameter is made of, by the model's name.
    """

    source: Checkpoint
    model: Model
    renamed: Mapping[str, str]
    conversions: list[Conversion] = field(default_factory=list)
    prefix: str = ""
    sources: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.source.config
        self._by_name: dict[str, Conversion] = {}
        for stored, name in self.renamed.items():
            if stored in self.source.left_out:
                self.left_out[name] = self.source.left_out[stored]
            elif name not in self.model.shapes:
                self.leave_out(stored, self._unknown, is_unpaired=True)
            else:
                # A tensor that others are tied to comes before them.
                entry = self.source.entries[stored]
                owner = self.renamed.get(entry.tied_to or "", "")
                tied_to = owner if owner in self.entries else None
                self.entries[name] = replace(entry, tied_to=tied_to)
                self.sources[name] = (stored,)
        for conversion in self.conversions:
            self._add_converted(conversion)
        self._add_ties()
        in_order = (name for name in self.model.shapes if name in self.entries)
        self.entries = {name: self.entries[name] for name in in_order}

    def __getstate__(self) -> dict[str, Any]:
        # A worker needs the model only to convert.
        state = dict(self.__dict__)
        return state if self._by_name else {**state, "model": None}

    @property
    def _unknown(self) -> str:
        return f"not a parameter of {self.model.title}"

    def stored_entry(self, name: str) -> Entry | None:
        """What is stored under a name, also if the model does not have it; None if nothing is."""
        return self.entries.get(name) or self.source.entries.get(name)

    def stored_name(self, name: str) -> str:
        """The name under which a tensor is stored; the first one if it is made of several."""
        is_stored = name in self.entries and self.entries[name].tied_to is None
        return self.source.stored_name(self.sources[name][0]) if is_stored else name

    def tie(self, name: str, owner: str) -> None:
        """Add another name of a tensor."""
        self.entries[name] = replace(self.entries[owner], tied_to=owner)
        self.sources[name] = self.sources[owner]

    def _add_converted(self, conversion: Conversion) -> None:
        try:
            entries = {name: self.source.entry(name) for name in conversion.sources}
            empty = {
                name: torch.empty(entry.shape, device="meta") for name, entry in entries.items()
            }
            made = conversion.run(empty, self.model.module)
        except (LeftOutError, DamagedError) as error:
            self.leave_out(conversion.first, str(error), damaged=error.damaged)
            return
        dtype = next(iter(entries.values())).dtype
        is_computed = any(entry.is_computed for entry in entries.values())
        for name, tensor in made.items():
            if name not in self.model.shapes:
                self.leave_out(name, self._unknown, is_unpaired=True)
                continue
            self.entries[name] = Entry(tuple(tensor.shape), dtype, None, is_computed)
            self.sources[name], self._by_name[name] = tuple(entries), conversion

    def _add_ties(self) -> None:
        """Add the names of each tied parameter that is not stored.

        If one tensor is stored for all, it goes by the first name that the model has for it.
        """
        for group in self.model.tied:
            names = [name for name in group if name not in self.left_out]
            owners = [name for name in names if name in self.entries]
            owners = [name for name in owners if self.entries[name].tied_to is None]
            if len(owners) == 1 and owners[0] not in self._by_name:
                (owner,), owners = owners, names[:1]
                entry, sources = self.entries[owner], self.sources[owner]
                for name in names:
                    self.entries.pop(name, None)
                self.entries[owners[0]], self.sources[owners[0]] = entry, sources
            for name in names:
                if owners and name not in self.entries:
                    # An embedding is tied to another embedding rather than to a head.
                    kind = self.model.kind(name)
                    same = (owner for owner in owners if self.model.kind(owner) == kind)
                    self.tie(name, next(same, owners[0]))

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        name = self.entries[name].tied_to or name
        conversion = self._by_name.get(name)
        if conversion is None:
            return self.source.load(self.sources[name][0], expert)
        stored = self._sources_of(name, expert)
        made = conversion.run({own: self.source.load(own) for own in stored}, self.model.module)
        whole = made[name]
        return whole[0] if len(stored) < len(self.sources[name]) else whole

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the stored tensors that a tensor is made of; see :class:`Checkpoint`."""
        name = self.entries[name].tied_to or name
        for own in self._sources_of(name, expert):
            yield from self.source.stored(own, None if name in self._by_name else expert)

    def _sources_of(self, name: str, expert: int | None) -> Sequence[str]:
        """The stored tensors that a parameter is made of, or one expert of it if they are apart."""
        conversion = self._by_name.get(name)
        if expert is None or conversion is None or not conversion.is_by_expert:
            return self.sources[name]
        return conversion.of_expert(expert)


def views_of(
    tuned: Checkpoint,
    base: Checkpoint,
    module: torch.nn.Module | None = None,
    unknown: str | None = None,
) -> tuple[View, View, Model]:
    """A fine-tune and its base as a model has them after loading, and this model.

    It is the module; by default the first which has their tensors of the two modules that they come
    from, or that their configurations describe. If none has, it is the skeleton that their tensors
    tell, and its ``unknown`` says why; ``unknown`` asks for that.

    Raises:
        InvalidArgumentError: the module does not have their tensors, they have no name in common,
            or the tensors of one belong equally well to several parts of the other.
    """
    tuned, base = _unwrapped(tuned), _unwrapped(base)
    if unknown is not None:
        return _in_skeleton(tuned, base, unknown)
    likes = [side.config if side.module is None else side.module for side in (tuned, base)]
    reasons: list[str] = []
    for like in likes if module is None else [module]:
        try:
            if isinstance(like, Mapping):
                model = Model.of_config(like, tensors=len(tuned.entries))
            else:
                model = Model(unwrapped(like))
            side = "base" if tuned is base else "fine-tuned"
            view = _view(tuned, model, side, view_of(base, model))
            return view, _view(base, model, "base", view), model
        except UnknownModelError as error:
            reasons.append(str(error))
    if module is not None:
        raise InvalidArgumentError(reasons[0])
    return _in_skeleton(tuned, base, reasons[0])


def view_of(source: Checkpoint, model: Model) -> View:
    """A checkpoint under the names that its tensors have in a model."""
    return View(source, model, *_renamed(source.names, model))


def _unwrapped(source: Checkpoint) -> Checkpoint:
    """A checkpoint whose names are without the modules that wrap others."""
    names = {name: plain_name(name) for name in source.names}
    if all(map(str.__eq__, names, names.values())) or len({*names.values()}) < len(names):
        return source
    shapes = {names[name]: entry.shape for name, entry in source.entries.items()}
    view = View(source, Model.of_tensors(shapes, "wrapped modules"), names)
    view.module = source.module
    return view


def _view(source: Checkpoint, model: Model, side: str, other: View) -> View:
    """A checkpoint as a model of a known class has it; refuse one of another model."""
    view = view_of(source, model)
    fraction = _fraction(view)
    if fraction < _LEAST:
        # It may be of one part of the model, such as the encoder.
        try:
            match = _match(source, other, model.shapes)
        except AmbiguousError as error:
            if error.count >= _LEAST * len(source.names):
                raise
        else:
            renamed = {name: match.partners.get(name, name) for name in source.names}
            view = View(source, model, renamed, prefix=match.prefix)
            fraction = _fraction(view)
    if fraction < _LEAST and source.entries:
        msg = f"{model.title} is not the model of the {side} checkpoint: it has only "
        msg += f"{fraction:.0%} of the tensors by name and shape"
        raise UnknownModelError(msg)
    return view


def _fraction(view: View) -> float:
    """The fraction of a checkpoint's tensors that its model has in their shape."""
    shapes = view.model.shapes
    fitting = (name for name, entry in view.entries.items() if shapes[name] == entry.shape)
    stored = {name for fits in fitting for name in view.sources[fits]}
    return len(stored) / max(1, len(view.source.entries))


def _match(source: Checkpoint, other: Checkpoint, shapes: Mapping[str, Any]) -> NameMatch:
    """Where the tensors of a checkpoint belong in another one, or in its model."""

    def fits(name: str, partner: str) -> bool:
        return name in source.entries and source.entries[name].shape == shapes.get(partner)

    def likeness(partners: Partners) -> float | None:
        """The mean cosine of some matrices and their partners."""
        matrices = [
            (name, partner)
            for name, partner in partners.items()
            if fits(name, partner) and len(shapes[partner]) > 1 and partner in other.entries
        ]
        step = max(1, len(matrices) // _COMPARED)
        cosines = [
            torch.nn.functional.cosine_similarity(
                source.load(name).double().flatten(), other.load(partner).double().flatten(), dim=0
            ).item()
            for name, partner in matrices[::step]
        ]
        return sum(cosines) / len(cosines) if cosines else None

    return match_names(source.names, shapes, fits=fits, likeness=likeness)


def _in_skeleton(tuned: Checkpoint, base: Checkpoint, why: str) -> tuple[View, View, Model]:
    """Both sides under the longer one of their names, as the skeleton that they tell has them."""
    stored = {name: entry.shape for name, entry in base.entries.items()}
    match = _match(tuned, base, dict.fromkeys(base.left_out, ()) | stored)
    if not match.partners:
        msg = "the two checkpoints have no tensor name in common; pass two of the same model"
        raise InvalidArgumentError(msg)
    renamed = {name: max(name, match.partners.get(name, ""), key=len) for name in tuned.names}
    of_base = {partner: renamed[name] for name, partner in match.partners.items()}
    of_base = {name: of_base.get(name, name) for name in base.names}
    shapes = {of_base[name]: entry.shape for name, entry in base.entries.items()}
    shapes |= {renamed[name]: entry.shape for name, entry in tuned.entries.items()}
    turned = filter(has_conv1d_name, shapes) if stores_transposed(base) else ()
    model = Model.of_tensors(shapes, why, turned)
    views = View(tuned, model, renamed, prefix=match.prefix), View(base, model, of_base)
    lacking = [
        (view, other, name, entry)
        for view, other in (views, views[::-1])
        for name, entry in other.entries.items()
        if name not in view.names
    ]
    for view, other, name, entry in lacking:
        owner = entry.tied_to if entry.tied_to in view.entries else None
        # A bare model, whose names lack a prefix, does not have a head at all.
        if owner is None and not match.prefix:
            owner = tied_weight(name, entry.shape, view, other)
        if owner is not None:
            view.tie(name, owner)
    return *views, model


def _renamed(names: list[str], model: Model) -> tuple[dict[str, str], list[Conversion]]:
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
        return {name: name for name in names}, []
    with any_error_as(UnknownModelError, "transformers cannot read the configuration"):
        rules = get_model_conversion_mapping(module)  # pyright: ignore[reportArgumentType]
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    by_pattern = {pattern: rule for rule in converters for pattern in rule.source_patterns}
    renamed: dict[str, str] = {}
    conversions: dict[str, Conversion] = {}
    state = dict.fromkeys(shapes, True)
    # Its order of names fails at a superscript number, or at a very long one.
    with any_error_as(UnknownModelError, "transformers cannot read the names of the tensors"):
        for stored in sorted(names, key=dot_natural_key):
            name, pattern = rename_source_key(stored, renamings, converters, prefix, state)
            if name not in shapes and stored in shapes:
                name, pattern = rename_source_key(stored, [], [], prefix, state)
            if pattern is None or name not in shapes:
                renamed[stored] = name
            else:
                conversion = conversions.setdefault(name, Conversion(by_pattern[pattern], name))
                conversion.sources[stored] = pattern
    return renamed, list(conversions.values())

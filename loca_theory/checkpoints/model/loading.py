"""The model that a base and a fine-tune are loaded into, and both as it has them after loading.

transformers renames weights when it loads them. This module alone uses its interfaces for that,
which are young: where this version of transformers lacks them, names are matched by their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from loca_theory.checkpoints.model.matching import (
    AmbiguousError,
    NameMatch,
    Partners,
    match_names,
    mean_cosine,
    plain_name,
)
from loca_theory.checkpoints.model.model import Model, UnknownModelError
from loca_theory.checkpoints.model.view import Conversion, View
from loca_theory.checkpoints.source.checkpoint import Checkpoint, any_error_as
from loca_theory.checkpoints.source.layouts import has_conv1d_name, stores_transposed, tied_weight
from loca_theory.checkpoints.source.memory import unwrapped
from loca_theory.errors import InvalidArgumentError

# A model that has fewer of the tensors of a checkpoint is another one.
_LEAST = 0.5
# Matrices by which the values of two checkpoints are compared.
_COMPARED = 8


def views_of(
    tuned: Checkpoint,
    base: Checkpoint,
    module: torch.nn.Module | None = None,
) -> tuple[View, View, Model]:
    """A fine-tune and its base as a model has them after loading, and this model.

    It is the module; by default the first which has their tensors of the two modules that they come
    from, or that their configurations describe. If none has, it is the skeleton that their tensors
    tell, and its ``unknown`` says why.

    Raises:
        InvalidArgumentError: the module does not have their tensors, they have no name in common,
            or the tensors of one belong equally well to several parts of the other.
    """
    tuned, base = _unwrapped(tuned), _unwrapped(base)
    described = [side.config if side.module is None else side.module for side in (tuned, base)]
    described = [description for description in described if description != {}] or described[:1]
    count = max(len(tuned.entries), len(base.entries))
    reasons: list[str] = []
    for description in described if module is None else [module]:
        try:
            if isinstance(description, Mapping):
                model = Model.of_config(description, tensors=count)
            else:
                model = Model(unwrapped(description))
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
        raise UnknownModelError(
            f"{model.title} is not the model of the {side} checkpoint: it has only "
            f"{fraction:.0%} of the tensors by name and shape"
        )
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
        chosen = matrices[::step]
        return mean_cosine((source.load(name), other.load(partner)) for name, partner in chosen)

    return match_names(source.names, shapes, fits=fits, likeness=likeness)


def _in_skeleton(tuned: Checkpoint, base: Checkpoint, why: str) -> tuple[View, View, Model]:
    """Both sides under the longer one of their names, as the skeleton that they tell has them."""
    stored = {name: entry.shape for name, entry in base.entries.items()}
    match = _match(tuned, base, dict.fromkeys(base.left_out, ()) | stored)
    if not match.partners:
        sides = (("base", base), ("fine-tune", tuned))
        held = (f"the {side} has {next(iter(of.names), 'no tensor')}" for side, of in sides)
        raise InvalidArgumentError(
            f"the two checkpoints have no tensor name in common ({', '.join(held)}); pass two of "
            "the same model, the base first"
        )
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
        if name not in view.entries and name not in view.left_out
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

"""Modules that an adapter stores whole, such as embeddings and norms."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from loca_theory import _arguments
from loca_theory.checkpoints.change.adapter.increments import AdapterIncrements
from loca_theory.checkpoints.change.adapter.layers import PREFIX
from loca_theory.checkpoints.change.pair import CheckpointPair
from loca_theory.checkpoints.model.names import kind_of
from loca_theory.checkpoints.source.quantised import FP8
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class SavedModules:
    """Modules of the fine-tuned checkpoint to store whole.

    Attributes:
        tensors: Names of the tensors in the model.
        entries: The modules that hold them as PEFT's ``modules_to_save``.
    """

    tensors: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()

    def new_rows(self, pair: CheckpointPair) -> int | None:
        """Rows of a stored embedding if they are more or fewer than those of the base."""
        if pair.base is None:
            return None
        for name in self.tensors:
            now, was = pair.tuned.entries.get(name), pair.base.entries.get(name)
            if now and was and kind_of(name) == "embedding" and now.shape[0] != was.shape[0]:
                return now.shape[0]
        return None

    def load(self, pair: CheckpointPair, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """The tensors, under the names that PEFT gives them."""
        tensors = {}
        side = pair.tuned
        load = side.load_whole if isinstance(side, AdapterIncrements) else side.load
        for name in self.tensors:
            tensor = load(name)
            kind = dtype if tensor.is_floating_point() else tensor.dtype
            # A copy, because the tensor may be the checkpoint's own memory.
            tensors[PREFIX + name] = tensor.to(kind, copy=True).contiguous()
        return tensors


def carried_modules(adapter: AdapterIncrements) -> SavedModules:
    """The modules that an adapter stores whole already."""
    ends = tuple(module.removeprefix(PREFIX) for module in adapter.saved_modules)
    tensors = []
    for name in adapter.whole:
        parts = name.split(".")[:-1]
        if any(".".join(parts[:i]).endswith(ends) for i in range(1, len(parts) + 1)):
            tensors.append(name)
    return SavedModules(tuple(tensors), tuple(adapter.saved_modules) if tensors else ())


def find_saved_modules(pair: CheckpointPair, patterns: Sequence[str]) -> SavedModules:
    """Find the modules with a tensor whose name contains a match.

    A module is stored with all its tensors, and so is each module that shares a matrix with it in
    the model: PEFT gives each a copy.
    """
    if isinstance(pair.tuned, AdapterIncrements):
        if patterns:
            raise InvalidArgumentError(
                "an adapter keeps the modules that it stores whole; leave save_modules out"
            )
        return carried_modules(pair.tuned)
    model, names = pair.model, list(pair.tuned.entries)
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern == "":
            raise InvalidArgumentError(
                'save_modules="" would match every module; name one, or leave it out'
            )
        _arguments.expression("save_modules", pattern)
        matching = [name for name in names if re.search(pattern, name)]
        left_out = pair.tuned.left_out
        damaged = [n for n, error in left_out.items() if error.damaged and re.search(pattern, n)]
        if damaged or not matching:
            why = f"{damaged[0]} is damaged" if damaged else "no tensor's name contains a match"
            raise InvalidArgumentError(f'save_modules="{pattern}" cannot be stored: {why}')
        chosen |= dict.fromkeys(name.rpartition(".")[0] for name in matching)
    if "" in chosen:
        raise InvalidArgumentError(
            "save_modules must not match a tensor of the model itself; choose tensors of modules"
        )
    chosen |= {
        other.rpartition(".")[0]: None
        for name, ties in model.ties.items()
        if len(model.shapes[name]) > 1 and name.rpartition(".")[0] in chosen
        for other in ties
    }
    # A module inside another one is stored with it.
    modules = [
        module for module in chosen if not any(module.startswith(f"{other}.") for other in chosen)
    ]
    inside = tuple(f"{module}." for module in modules)
    tensors = tuple(name for name in names if name.startswith(inside))
    stored = {name: pair.tuned.entries[name] for name in tensors}
    if parametrised := [
        name for name, entry in stored.items() if entry.is_computed and not FP8.match(entry.dtype)
    ]:
        raise InvalidArgumentError(
            f"save_modules would store {parametrised[0]}, and the model has the parts of its "
            "weight normalisation; match fewer modules"
        )
    return SavedModules(tensors, tuple(entry_of(module, model.modules) for module in modules))


def entry_of(module: str, modules: Collection[str]) -> str:
    """A module as an entry of PEFT's ``modules_to_save`` that fits no other module.

    PEFT takes an entry to fit any name that ends with it, even inside a word, and what lies inside
    such a module. If this is another one, the entry begins with the prefix of all names in PEFT.

    >>> entry_of("norm", ["norm", "block.norm"]), entry_of("wte", ["wte", "wpe"])
    ('base_model.model.norm', 'wte')
    """
    inside = re.compile(rf"(^|.*\.){module}($|\..*)")
    is_other = (
        other.endswith(module) or inside.match(other)
        for other in modules
        if other != module and not other.startswith(f"{module}.")
    )
    return f"{PREFIX}{module}" if any(is_other) else module

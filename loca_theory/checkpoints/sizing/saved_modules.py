"""Modules that an adapter stores whole, such as embeddings and norms."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import torch

from loca_theory import _arguments
from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.adapters.layers import PREFIX
from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.pairs.linear_layers import module_names
from loca_theory.checkpoints.pairs.loaded_model import LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.weights.quantised import FP8
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class SavedModules:
    """Modules of the fine-tuned checkpoint to store whole.

    Attributes:
        tensors: Name of each tensor on the fine-tuned side, by its name in the model with a head.
        entries: The modules that hold them as PEFT's ``modules_to_save``.
    """

    tensors: dict[str, str] = field(default_factory=dict)
    entries: tuple[str, ...] = ()

    def new_rows(self, pair: CheckpointPair) -> int | None:
        """Rows of a stored embedding if they are more or fewer than those of the base."""
        if pair.base is None:
            return None
        for name in self.tensors.values():
            own = pair.tuned.entries.get(name)
            was = pair.base.entries.get(pair.partners.get(name, ""))
            if own and was and kind_of(name) == "embedding" and own.shape[0] != was.shape[0]:
                return own.shape[0]
        return None

    def load(self, pair: CheckpointPair, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """The tensors, under the names that PEFT gives them."""
        found = {}
        side = pair.tuned
        load = side.load_whole if isinstance(side, AdapterIncrements) else side.load
        for own, name in self.tensors.items():
            tensor = load(name)
            kind = dtype if tensor.is_floating_point() else tensor.dtype
            # A copy, because the tensor may be the checkpoint's own memory.
            found[PREFIX + own] = tensor.to(kind, copy=True).contiguous()
        return found


def carried_modules(adapter: AdapterIncrements) -> SavedModules:
    """The modules that an adapter stores whole already."""
    ends = tuple(one.removeprefix(PREFIX) for one in adapter.saved_modules)
    tensors: dict[str, str] = {}
    for name in adapter.whole:
        parts = name.split(".")[:-1]
        if any(".".join(parts[:i]).endswith(ends) for i in range(1, len(parts) + 1)):
            tensors[name] = name
    return SavedModules(tensors, tuple(adapter.saved_modules) if tensors else ())


def find_saved_modules(
    pair: CheckpointPair, patterns: Sequence[str], model: LoadedModel | None
) -> SavedModules:
    """Find the modules with a tensor whose name contains a match.

    A module is stored with all its tensors, and so is each module that shares a matrix with it in a
    model that is known: PEFT gives each a copy.
    """
    if isinstance(pair.tuned, AdapterIncrements):
        if patterns:
            msg = "an adapter keeps the modules that it stores whole; leave save_modules out"
            raise InvalidArgumentError(msg)
        return carried_modules(pair.tuned)
    # By the name in the model with a head.
    partners = pair.partners
    own = {max(name, partners.get(name, ""), key=len): name for name in pair.tuned.entries}
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern == "":
            msg = 'save_modules="" would match every module; name one, or leave it out'
            raise InvalidArgumentError(msg)
        _arguments.expression("save_modules", pattern)
        matching = [name for name in own if re.search(pattern, name)]
        left_out = pair.tuned.left_out
        damaged = [n for n, one in left_out.items() if one.damaged and re.search(pattern, n)]
        if damaged or not matching:
            why = f"{damaged[0]} is damaged" if damaged else "no tensor's name contains a match"
            msg = f'save_modules="{pattern}" cannot be stored: {why}'
            raise InvalidArgumentError(msg)
        chosen |= dict.fromkeys(name.rpartition(".")[0] for name in matching)
    if "" in chosen:
        msg = "save_modules must not match a tensor of the model itself; choose tensors of modules"
        raise InvalidArgumentError(msg)
    if model is not None:
        chosen |= {
            other.rpartition(".")[0]: None
            for name, others in model.ties.items()
            if len(model.shapes[name]) > 1 and name.rpartition(".")[0] in chosen
            for other in others
        }
    # A module inside another one is stored with it.
    modules = [one for one in chosen if not any(one.startswith(f"{other}.") for other in chosen)]
    tensors = {
        name: tuned
        for name, tuned in own.items()
        if any(name.startswith(f"{module}.") for module in modules)
    }
    entries = {name: pair.tuned.entries[tuned] for name, tuned in tensors.items()}
    if parametrised := [
        name for name, entry in entries.items() if entry.is_computed and not FP8.match(entry.dtype)
    ]:
        msg = f"save_modules would store {parametrised[0]}, and the model has the parts of its "
        raise InvalidArgumentError(msg + "weight normalisation; match fewer modules")
    others = module_names(pair, model)
    return SavedModules(tensors, tuple(entry_of(module, others) for module in modules))


def entry_of(module: str, others: Collection[str]) -> str:
    """A module as an entry of PEFT's ``modules_to_save`` that fits no other module.

    PEFT takes an entry to fit any name that ends with it, even inside a word, and what lies inside
    such a module. If this is another one, the entry begins with the prefix of all names in PEFT.

    >>> entry_of("norm", ["norm", "block.norm"]), entry_of("wte", ["wte", "wpe"])
    ('base_model.model.norm', 'wte')
    """
    inside = re.compile(rf"(^|.*\.){module}($|\..*)")
    is_other = (
        other.endswith(module) or inside.match(other)
        for other in others
        if other != module and not other.startswith(f"{module}.")
    )
    return f"{PREFIX}{module}" if any(is_other) else module

"""A checkpoint as its model has it after loading: under its names, and in its parts.

transformers makes some weights from several stored ones, or from a part of one, when it loads them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    LeftOutError,
    TensorEntry,
    any_error_as,
    reason_of,
)


@dataclass(frozen=True)
class Conversion:
    """A conversion of stored tensors to parameters of a model.

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
            parts = converter.convert(self.first, model=model, config=model.config)
        return {name: part[0] if isinstance(part, list) else part for name, part in parts.items()}

    def of_expert(self, expert: int) -> list[str]:
        """The stored tensors of one expert: the one of this number that matches each pattern."""
        by_pattern: dict[str, list[str]] = {}
        for name, pattern in self.sources.items():
            by_pattern.setdefault(pattern, []).append(name)
        return [names[expert] for names in by_pattern.values()]

    @property
    def is_by_expert(self) -> bool:
        """Whether each expert's part of the parameter is made of that expert's tensors alone."""
        first, *later = [(type(step).__name__, vars(step)) for step in self.converter.operations]
        return first == ("MergeModulelist", {"dim": 0}) and all(
            (kind == "Concatenate" and settings["dim"] != 0)
            or (kind == "Transpose" and 0 not in (settings["dim0"], settings["dim1"]))
            for kind, settings in later
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
                owner = None if entry.tied_to is None else self.renamed.get(entry.tied_to)
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

    def stored_entry(self, name: str) -> TensorEntry | None:
        """The tensor stored under a name, also if the model does not have it; None without one."""
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
            parameters = conversion.run(empty, self.model.module)
        except (LeftOutError, DamagedError) as error:
            self.leave_out(conversion.first, reason_of(error), damaged=error.damaged)
            return
        dtype = next(iter(entries.values())).dtype
        is_computed = any(entry.is_computed for entry in entries.values())
        for name, tensor in parameters.items():
            if name not in self.model.shapes:
                self.leave_out(name, self._unknown, is_unpaired=True)
                continue
            self.entries[name] = TensorEntry(tuple(tensor.shape), dtype, None, is_computed)
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
        tensors = {part: self.source.load(part) for part in stored}
        parameter = conversion.run(tensors, self.model.module)[name]
        return parameter[0] if len(stored) < len(self.sources[name]) else parameter

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the stored tensors that a tensor is made of; see :class:`Checkpoint`."""
        name = self.entries[name].tied_to or name
        for stored in self._sources_of(name, expert):
            yield from self.source.stored(stored, None if name in self._by_name else expert)

    def _sources_of(self, name: str, expert: int | None) -> Sequence[str]:
        """The stored tensors that a parameter is made of, or one expert of it if they are apart."""
        conversion = self._by_name.get(name)
        if expert is None or conversion is None or not conversion.is_by_expert:
            return self.sources[name]
        return conversion.of_expert(expert)

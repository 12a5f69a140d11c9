"""Which matrices of two checkpoints can be compared, and why the rest cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import psutil
import torch

from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.settings import Selection
from loca_theory.checkpoints.weights.checkpoint import (
    FLOATS,
    Checkpoint,
    Entry,
    LeftOutError,
)
from loca_theory.checkpoints.weights.layouts import (
    LARGEST_KERNEL,
    by,
    holds_experts,
    match_names,
    matrix_shape,
    resized,
    tied_weight,
)
from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class Weight:
    """A matrix that both checkpoints hold.

    Attributes:
        name: Name of the matrix in the base, or in the fine-tuned checkpoint if the base has no
            tensor of its name; with the number of the expert in brackets.
        shape: Numbers of rows and columns that are compared: the rows that both sides have.
        tuned: Name of the tensor of the fine-tuned checkpoint that holds it.
        base: Name of the base's tensor, or of that to which an increment is added.
        entry: What the fine-tuned checkpoint stores of that tensor.
        expert: Index of the expert; None if the whole tensor is one matrix.
        note: What is special about the comparison; usually "".
    """

    name: str
    shape: tuple[int, int]
    tuned: str
    base: str
    entry: Entry
    expert: int | None = None
    note: str = ""

    @property
    def own(self) -> str:
        """Name of the matrix in the fine-tuned checkpoint."""
        return self.tuned if self.expert is None else f"{self.tuned}[{self.expert}]"

    def load(self, side: Checkpoint, tensor: str) -> torch.Tensor:
        """Load the compared rows of one side, which may be the checkpoint's own memory."""
        return side.load(tensor, self.expert).reshape(-1, self.shape[1])[: self.shape[0]]


@dataclass
class MatchedPair:
    """A base and a fine-tuned checkpoint, matched by name, and what of them can be compared.

    Attributes:
        tuned: The fine-tuned side.
        base: The base; None if the fine-tuned side holds increments, as an adapter does.
        selection: Which matrices to compare.
        matrices: The comparable matrices by their names. A weight that the base ties to another
            goes by its name in the fine-tuned checkpoint.
        partners: Name in the base of each tensor of the fine-tuned checkpoint that is in both.
        skipped: Tensors that are not compared.
        prefix: Prefix that the names of only one side have; usually "".
    """

    tuned: Checkpoint
    base: Checkpoint | None = None
    selection: Selection = field(default_factory=Selection)
    matrices: dict[str, Weight] = field(init=False, default_factory=dict)
    partners: dict[str, str] = field(init=False, default_factory=dict)
    skipped: list[Skipped] = field(init=False, default_factory=list)
    prefix: str = field(init=False, default="")

    def __post_init__(self) -> None:
        tuned, selects = self.tuned.names, self.selection.selects
        matches: list[tuple[str | None, str | None]] = [(name, name) for name in tuned]
        if self.base is not None:
            base = self.base.names
            self.partners, self.prefix = match_names(tuned, base)
            if not self.partners:
                msg = "the two checkpoints have no tensor name in common; pass two of the same "
                raise InvalidArgumentError(msg + "model")
            both = set(self.partners.values())
            matches = [(name, self.partners.get(name)) for name in tuned]
            matches += [(None, name) for name in base if name not in both]
        for mine, other in matches:
            name = other or mine or ""
            try:
                found = [one for one in self._matrices(name, mine, other) if selects(one.name)]
                self.matrices |= {one.name: one for one in found}
            except LeftOutError as error:
                if selects(name):
                    self.skipped.append(Skipped(name, str(error), error.damaged))
        if not self.matrices and not any(one.damaged for one in self.skipped):
            raise nothing_left(self.skipped, "matrix is left to compare")

    def _matrices(self, name: str, tuned: str | None, base: str | None) -> list[Weight]:
        sides = {"fine-tuned": self.tuned} | ({} if self.base is None else {"base": self.base})
        own, notes = {"fine-tuned": tuned, "base": base}, []
        for side, other in (("fine-tuned", "base"), ("base", "fine-tuned")):
            if own[side] is None:
                own[side] = self._tied(name, other, sides[other], sides[side])
                notes = [_is_tied(side, name, own[side])]
        names = [one or "" for one in own.values()]
        # Without a base, its name is that of the weight which the increment changes.
        entries = [one.entry(other) for one, other in zip(sides.values(), names, strict=False)]
        ties = [one.tied_to for one in entries]
        if ties[0] is not None and (len(ties) == 1 or self.partners.get(ties[0]) == ties[1]):
            msg = f"tied to {ties[-1]}"
            raise LeftOutError(msg)
        for side, tie in zip(sides, ties, strict=True):
            notes += [] if tie is None else [f"the {side} checkpoint ties it to {tie}"]
        shapes = [one.shape for one in entries]
        if isinstance(self.tuned, AdapterIncrements):
            names[1] = self.tuned.base_name(names[0])
            if names[1] != names[0]:
                notes = [_is_tied("base", name, names[1])]
            shapes += [one.shape for one in [self.tuned.base.entries.get(names[1])] if one]
        shape, note = _common_shape(name, shapes)
        notes += [note] if note else []
        if reason := self._obstacle(name, shape, entries):
            raise LeftOutError(reason)
        flat = matrix_shape(name, shape, self.selection.experts)
        whole = Weight(name, flat, names[0], names[1], entries[0], note="; ".join(notes))
        if not holds_experts(name, shape) or self.selection.experts != "each":
            return [whole]
        return [replace(whole, name=f"{name}[{i}]", expert=i) for i in range(shape[0])]

    def _tied(self, name: str, title: str, side: Checkpoint, other: Checkpoint) -> str:
        """The other side's weight to which it ties a head or embedding of one side."""
        entry = side.entry(name)
        if entry.tied_to is not None:
            owner = entry.tied_to if title == "base" else self.partners.get(entry.tied_to)
            if owner in self.partners.values():
                msg = f"tied to {owner}"
                raise LeftOutError(msg)
        # A bare model, whose names lack a prefix, does not have a head at all.
        found = None if self.prefix else tied_weight(name, entry.shape, other)
        if found is None:
            msg = f"only in the {title} checkpoint"
            raise LeftOutError(msg)
        return found

    def _obstacle(self, name: str, shape: tuple[int, ...], entries: list[Entry]) -> str | None:
        """Why a tensor has no matrices of a type and size that can be compared; None if it has."""
        if unfit := [one for one in entries if not (FLOATS.match(one.dtype) or one.is_computed)]:
            return f"{unfit[0].dtype} is not a floating type: quantised, or not a weight"
        if not 2 <= len(shape) <= LARGEST_KERNEL:
            return f"not a matrix: {len(shape)} dimensions"
        flat, largest = matrix_shape(name, shape, self.selection.experts), self.selection.max_size
        if not shape[0]:
            return f"too small: {by(shape)}"
        if min(flat) < self.selection.smallest_side:
            return f"too small (a side below {self.selection.smallest_side}): {by(flat)}"
        # The machine must hold two copies in float32.
        if math.prod(flat) > psutil.virtual_memory().total // 8:
            return f"larger than this machine's memory: {by(flat)}"
        if largest is not None and math.prod(flat) > largest:
            return f"larger than max_size={largest}: {by(flat)}"
        return None


def reasons(skipped: Sequence[Skipped]) -> str:
    """How many tensors were left out for each of the most frequent reasons."""
    counts = Counter(one.reason.partition(":")[0] for one in skipped)
    return ", ".join(f"{n} tensor{'s' * (n > 1)} ({reason})" for reason, n in counts.most_common(6))


def nothing_left(skipped: Sequence[Skipped], what: str) -> InvalidArgumentError:
    """The error for a selection of which nothing is left."""
    msg = f"no {what} (left out: {reasons(skipped) or 'all, by their names'}); "
    return InvalidArgumentError(msg + 'change include="...", exclude="..." or max_size="..."')


def _is_tied(side: str, name: str, other: str | None) -> str:
    """The remark that a weight is compared with the one that a side ties it to."""
    return f"the {side} checkpoint has no {name}, but {other}, to which it ties it"


def _common_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], str]:
    """What two tensors have in common, and a remark if it is a part of a resized vocabulary."""
    now, was = shapes[0], shapes[-1]
    if now == was:
        return now, ""
    if holds_experts(name, was) and holds_experts(name, now) and was[0] != now[0]:
        msg = f"numbers of experts differ: {was[0]} in the base, {now[0]} in the fine-tuned "
        raise LeftOutError(msg + "checkpoint")
    if len(was) != 2 or was[1:] != now[1:] or kind_of(name) != "embedding":
        raise LeftOutError(resized(was, now))
    rows = min(was[0], now[0])
    return (rows, now[1]), f"resized from {was[0]} to {now[0]} rows: the first {rows} are compared"

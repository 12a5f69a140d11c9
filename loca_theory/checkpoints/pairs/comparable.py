"""What of two matched tensors can be compared, and why the rest cannot."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import psutil
import torch

from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.pairs.selection import Selection
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, DamagedError, Entry, LeftOutError
from loca_theory.checkpoints.weights.matching import tied_weight
from loca_theory.checkpoints.weights.stored_matrices import holds_experts, matrix_shape

_MATRIX_DIMENSIONS = 2

# Types that can be subtracted; a tensor of any other type is quantised or not a weight.
_FLOATS = re.compile(r"^(f|bf|float|bfloat)(8|16|32|64)", re.IGNORECASE)


@dataclass(frozen=True)
class Weight:
    """A matrix that both checkpoints hold.

    Attributes:
        name: Name of the matrix in the base, or in the fine-tuned checkpoint if the base has no
            tensor of its name; with the number of the expert in brackets.
        shape: Numbers of rows and columns that are compared: the rows that both sides have.
        tuned: Name of the tensor of the fine-tuned checkpoint that holds it.
        base: Name of the base's tensor; None without a base.
        stored_shape: Shape of the fine-tuned checkpoint's tensor.
        dtype: Element type of that tensor, as it is stored.
        expert: Index of the expert; None if the whole tensor is one matrix.
        note: What is special about the comparison; usually "".
    """

    name: str
    shape: tuple[int, int]
    tuned: str
    base: str | None
    stored_shape: tuple[int, ...]
    dtype: str
    expert: int | None = None
    note: str = ""

    @property
    def own(self) -> str:
        """Name of the matrix in the fine-tuned checkpoint."""
        return _matrix_name(self.tuned, self.expert)

    def load(self, side: Checkpoint, tensor: str) -> torch.Tensor:
        """Load the compared rows of one side, which may be the checkpoint's own memory."""
        found, shape = side.load(tensor, self.expert), side.entries[tensor].shape
        if tuple(found.shape) != (shape if self.expert is None else shape[1:]):
            msg = f"{tensor} has changed its shape since it was opened; start again"
            raise DamagedError(msg)
        return found.reshape(-1, self.shape[1])[: self.shape[0]]


@dataclass(frozen=True)
class MatrixFinder:
    """Finds what can be compared of tensors that were matched by name.

    Attributes:
        tuned: The fine-tuned checkpoint.
        base: The base; None if the fine-tuned side holds increments.
        selection: Which matrices to compare.
        partners: Name in the base of each tensor of the fine-tuned checkpoint that is in both.
        prefix: Prefix that the names of only one side have.
    """

    tuned: Checkpoint
    base: Checkpoint | None
    selection: Selection
    partners: Mapping[str, str]
    prefix: str

    def find(self, tuned: str | None, base: str | None) -> Iterator[Weight | Skipped]:
        """Yield the comparable matrices of a tensor by its two names, or why there are none."""
        name = base or tuned or ""
        try:
            found = self._matrices(name, tuned, base)
        except LeftOutError as error:
            if self.selection.selects(name):
                yield Skipped(name, str(error), error.damaged)
            return
        yield from (one for one in found if self.selection.selects(one.name))

    def _matrices(self, name: str, tuned: str | None, base: str | None) -> list[Weight]:
        notes = []
        if self.base is not None and (tuned is None or base is None):
            tuned, base, note = self._with_tied(tuned, base, self.base)
            notes.append(note)
        entries = [_entry(self.tuned, tuned or "")]
        if self.base is not None:
            entries.append(_entry(self.base, base or ""))
        notes += self._ties(entries)
        shape, note = _common_shape(name, entries)
        notes += [note] if note else []
        if unfit := [one for one in entries if not (_FLOATS.match(one.dtype) or one.is_scaled)]:
            msg = f"{unfit[0].dtype} is not a floating type: quantised, or not a weight"
            raise LeftOutError(msg)
        flat = self._matrix_shape(name, shape)
        is_split = holds_experts(name, shape) and self.selection.experts == "each"
        return [
            Weight(
                _matrix_name(name, expert),
                flat,
                tuned or "",
                None if self.base is None else base,
                entries[0].shape,
                entries[0].dtype,
                expert,
                "; ".join(notes),
            )
            for expert in (range(shape[0]) if is_split else [None])
        ]

    def _with_tied(
        self, tuned: str | None, base: str | None, side_of_base: Checkpoint
    ) -> tuple[str, str, str]:
        """Complete a head or embedding by the weight that it is tied to on the other side."""
        name = base or tuned or ""
        here, there, side, other = self.tuned, side_of_base, "fine-tuned", "base"
        if tuned is None:
            here, there, side, other = side_of_base, self.tuned, "base", "fine-tuned"
        entry = _entry(here, name)
        if entry.tied_to is not None:
            owner = self.partners.get(entry.tied_to) if here is self.tuned else entry.tied_to
            if owner in self.partners.values():
                msg = f"tied to {owner}"
                raise LeftOutError(msg)
        found = None
        if not self.prefix:
            # A bare model, whose names lack a prefix, does not have a head at all.
            found = tied_weight(name, entry.shape, there)
        if found is None:
            msg = f"only in the {side} checkpoint"
            raise LeftOutError(msg)
        note = f"the {other} checkpoint has no {name}, but {found}, to which it ties it"
        return (found, name, note) if tuned is None else (name, found, note)

    def _ties(self, entries: list[Entry]) -> list[str]:
        """Remarks if a weight is tied on one side only."""
        ties = [one.tied_to for one in entries]
        if ties[0] is not None and (len(ties) == 1 or self.partners.get(ties[0]) == ties[1]):
            msg = f"tied to {ties[-1]}"
            raise LeftOutError(msg)
        sides = ("fine-tuned", "base")
        return [
            f"the {side} checkpoint ties it to {tie}"
            for tie, side in zip(ties, sides, strict=False)
            if tie is not None
        ]

    def _matrix_shape(self, name: str, shape: tuple[int, ...]) -> tuple[int, int]:
        """Shape of the matrices of a tensor, which must have a size that can be compared."""
        flat = matrix_shape(name, shape, self.selection.experts)
        if flat is None:
            msg = f"not a matrix: {len(shape)} dimensions"
            raise LeftOutError(msg)
        size, largest = _by(flat), self.selection.max_size
        reason = None
        if not shape[0]:
            reason = f"too small: {_by(shape)}"
        elif min(flat) < self.selection.smallest_side:
            reason = f"too small: {size}"
        elif math.prod(flat) > _most_entries():
            reason = f"larger than this machine's memory: {size}"
        elif largest is not None and math.prod(flat) > largest:
            reason = f"larger than max_size={largest}: {size}"
        if reason is not None:
            raise LeftOutError(reason)
        return flat


def _matrix_name(tensor: str, expert: int | None) -> str:
    return tensor if expert is None else f"{tensor}[{expert}]"


def _entry(side: Checkpoint, own: str) -> Entry:
    if own in side.damaged:
        raise LeftOutError(side.damaged[own], damaged=True)
    if own in side.ignored:
        raise LeftOutError(side.ignored[own])
    return side.entries[own]


def _common_shape(name: str, entries: list[Entry]) -> tuple[tuple[int, ...], str]:
    """What two tensors have in common, and a remark if it is a part of a resized vocabulary."""
    now, was = entries[0].shape, entries[-1].shape
    if now == was:
        return now, ""
    if holds_experts(name, was) and holds_experts(name, now) and was[0] != now[0]:
        msg = f"numbers of experts differ: {was[0]} in the base, {now[0]} in the fine-tuned "
        raise LeftOutError(msg + "checkpoint")
    is_matrix = len(was) == len(now) == _MATRIX_DIMENSIONS
    if not is_matrix or was[1] != now[1] or kind_of(name) != "embedding":
        msg = f"resized from {_by(was)} to {_by(now)}"
        raise LeftOutError(msg)
    rows = min(was[0], now[0])
    return (rows, now[1]), f"resized from {was[0]} to {now[0]} rows: the first {rows} are compared"


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _most_entries() -> int:
    """Largest number of entries of a matrix of which this machine can hold two float32 copies."""
    return psutil.virtual_memory().total // 8

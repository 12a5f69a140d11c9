"""Which matrices of two checkpoints can be compared, and why the rest cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import psutil
import torch

from loca_theory._words import counted
from loca_theory.checkpoints.change.adapter.increments import AdapterIncrements
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.model.names import kind_of
from loca_theory.checkpoints.source.checkpoint import (
    FLOATS,
    Checkpoint,
    LeftOutError,
    Reason,
    Skipped,
    TensorEntry,
    reason_of,
)
from loca_theory.checkpoints.source.layouts import (
    LARGEST_KERNEL,
    by,
    holds_experts,
    matrix_shape,
    resized,
)
from loca_theory.errors import InvalidArgumentError

_NAMED = 3
# What to do if nothing is left, of what was chosen or of two models of other shapes.
_SELECT = 'change include="...", exclude="..." or max_size="..."'
_SAME_SIZE = "pass two checkpoints of the same model, in the same size"


@dataclass(frozen=True)
class Weight:
    """A matrix that both checkpoints hold.

    Attributes:
        name: Name of the matrix in the model, with the number of the expert in brackets.
        shape: Numbers of rows and columns that are compared: the rows that both sides have.
        tensor: Name in the model of the tensor that holds it.
        entry: What the fine-tuned checkpoint stores of that tensor.
        expert: Index of the expert; None if the whole tensor is one matrix.
        note: What is special about the comparison; usually "".
    """

    name: str
    shape: tuple[int, int]
    tensor: str
    entry: TensorEntry
    expert: int | None = None
    note: str = ""

    def load(self, side: Checkpoint) -> torch.Tensor:
        """Load the compared rows of one side, which may be the checkpoint's own memory."""
        tensor = side.load(self.tensor, self.expert)
        return tensor.reshape(-1, self.shape[1])[: self.shape[0]]


@dataclass(frozen=True)
class Coverage:
    """How much of the smaller side is compared.

    Attributes:
        side: Which side has fewer parameters.
        fraction: Fraction of its parameters in matrices that are compared. What is left out by
            rule, such as vectors and what is not selected, does not count.
        missing: Number of its tensors that have no partner.
        largest: Names of the largest of these.
    """

    side: str
    fraction: float
    missing: int
    largest: list[str]


@dataclass
class MatchedPair:
    """A base and a fine-tuned checkpoint under the names of their model, and what is compared.

    Attributes:
        tuned: The fine-tuned side.
        model: The model whose names the matrices have.
        base: The base; None if the fine-tuned side holds increments, as an adapter does.
        selection: Which matrices to compare.
        matrices: The comparable matrices by their names.
        skipped: Tensors that are not compared.
        coverage: How much is compared; None without a base.
    """

    tuned: Checkpoint
    model: Model
    base: Checkpoint | None = None
    selection: MatrixSelection = field(default_factory=MatrixSelection)
    matrices: dict[str, Weight] = field(init=False, default_factory=dict)
    skipped: list[Skipped] = field(init=False, default_factory=list)
    coverage: Coverage | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        selects, unpaired = self.selection.selects, set[str]()
        for name in dict.fromkeys(name for side in self._sides.values() for name in side.names):
            try:
                matrices = [matrix for matrix in self._matrices(name) if selects(matrix.name)]
                self.matrices |= {matrix.name: matrix for matrix in matrices}
            except LeftOutError as error:
                if selects(name):
                    self.skipped.append(Skipped.of(name, reason_of(error), damaged=error.damaged))
                    unpaired |= {name} if error.is_unpaired else set()
        if not self.matrices and not any(row.damaged for row in self.skipped):
            are_unpaired = unpaired.issuperset(row.name for row in self.skipped)
            way_out = _SAME_SIZE if unpaired and are_unpaired else _SELECT
            raise nothing_left(self.skipped, "matrix is left to compare", way_out)
        if self.base is not None:
            self.coverage = self._covered(unpaired)

    @property
    def _sides(self) -> dict[str, Checkpoint]:
        """Both sides by their titles."""
        return {"fine-tuned": self.tuned} | ({} if self.base is None else {"base": self.base})

    def _matrices(self, name: str) -> list[Weight]:
        """The matrices of a tensor; raises why there are none."""
        for side in self._sides.values():
            if name in side.left_out:
                raise side.left_out[name]
        for title, side in self._sides.items():
            if name not in side.entries:
                (other,) = self._sides.keys() - {title}
                raise LeftOutError(f"only in the {other} checkpoint", is_unpaired=True)
        entries = [side.entries[name] for side in self._sides.values()]
        ties = {entry.tied_to for entry in entries}
        if len(ties) == 1 and None not in ties:
            raise LeftOutError(f"tied to {ties.pop()}")
        notes = [
            f"the {title} checkpoint ties it to {entry.tied_to}"
            for title, entry in zip(self._sides, entries, strict=True)
            if entry.tied_to is not None
        ]
        shapes = [entry.shape for entry in entries]
        if isinstance(self.tuned, AdapterIncrements) and name in self.tuned.base.entries:
            adapted = self.tuned.base.entries[name]
            shapes.append(adapted.shape)
            if adapted.tied_to is not None and name in self.tuned.whole:
                notes = [f"the base checkpoint ties it to {adapted.tied_to}"]
        shape, note = _common_shape(name, shapes)
        notes += [note] if note else []
        if reason := self._obstacle(name, shape, entries):
            raise LeftOutError(reason)
        flat = matrix_shape(name, shape, self.selection.experts)
        weight = Weight(name, flat, name, entries[0], note="; ".join(notes))
        if not holds_experts(name, shape) or self.selection.experts != "each":
            return [weight]
        return [replace(weight, name=f"{name}[{i}]", expert=i) for i in range(shape[0])]

    def _covered(self, unpaired: set[str]) -> Coverage:
        """How much of the smaller side is compared, if these tensors have no partner."""
        compared = {matrix.tensor for matrix in self.matrices.values()}
        coverages = []
        for title, side in self._sides.items():
            sizes = {
                name: math.prod(entry.shape)
                for name in compared | unpaired
                if (entry := side.stored_entry(name)) is not None
                and (name in compared or not self._obstacle(name, entry.shape, [entry]))
            }
            total = sum(sizes.values())
            missing = sorted(unpaired & sizes.keys(), key=lambda name: (-sizes[name], name))
            lost = sum(sizes[name] for name in missing)
            fraction = 1 - lost / max(total, 1)
            coverages.append((total, Coverage(title, fraction, len(missing), missing[:_NAMED])))
        return min(coverages, key=lambda coverage: coverage[0])[1]

    def _obstacle(
        self, name: str, shape: tuple[int, ...], entries: list[TensorEntry]
    ) -> Reason | None:
        """Why a tensor has no matrices of a type and size that can be compared; None if it has."""
        for entry in entries:
            if not (FLOATS.match(entry.dtype) or entry.is_computed):
                return Reason(f"{entry.dtype} is not a floating type", "quantised, or not a weight")
        if not 2 <= len(shape) <= LARGEST_KERNEL:
            return Reason("not a matrix", f"{len(shape)} dimensions")
        flat, largest = matrix_shape(name, shape, self.selection.experts), self.selection.max_size
        if not shape[0]:
            return Reason("too small", by(shape))
        if min(flat) < self.selection.smallest_side:
            return Reason(f"too small (a side below {self.selection.smallest_side})", by(flat))
        # The machine must hold two copies in float32.
        if math.prod(flat) > psutil.virtual_memory().total // 8:
            return Reason("larger than this machine's memory", by(flat))
        if largest is not None and math.prod(flat) > largest:
            return Reason(f"larger than max_size={largest}", by(flat))
        return None


def reasons(skipped: Sequence[Skipped]) -> str:
    """How many tensors were left out for each of the most frequent reasons."""
    counts = Counter(row.case for row in skipped).most_common(6)
    return ", ".join(f"{counted(count, 'tensor')} ({case})" for case, count in counts)


def nothing_left(
    skipped: Sequence[Skipped], what: str, way_out: str = _SELECT
) -> InvalidArgumentError:
    """The error for a selection of which nothing is left."""
    return InvalidArgumentError(
        f"no {what} (left out: {reasons(skipped) or 'all, by their names'}); {way_out}"
    )


def _common_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], str]:
    """What two tensors have in common, and a remark if it is a part of a resized vocabulary."""
    now, was = shapes[0], shapes[-1]
    if now == was:
        return now, ""
    if holds_experts(name, was) and holds_experts(name, now) and was[0] != now[0]:
        numbers = f"{was[0]} in the base, {now[0]} in the fine-tuned checkpoint"
        raise LeftOutError(Reason("numbers of experts differ", numbers), is_unpaired=True)
    if len(was) != 2 or was[1:] != now[1:] or kind_of(name) != "embedding":
        raise LeftOutError(resized(was, now), is_unpaired=True)
    rows = min(was[0], now[0])
    return (rows, now[1]), f"resized from {was[0]} to {now[0]} rows: the first {rows} are compared"

"""Two checkpoints side by side: which matrices can be compared, and why the others cannot."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psutil

from loca_theory._arguments import whole_number
from loca_theory.checkpoints.lora import LoraIncrements, is_adapter
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.sources import (
    Checkpoint,
    DamagedError,
    Source,
    TensorsCheckpoint,
    is_array,
    is_path,
    open_checkpoint,
    resolve,
)
from loca_theory.errors import InvalidArgumentError, ResourceError

if TYPE_CHECKING:
    import torch

_MATRIX_DIMENSIONS = 2
_ROWS_AT_ONCE = 1024

SMALLEST_SIDE = 16
"""Fewest rows and fewest columns for which the statistics are computed; smaller matrices are
skipped."""

# Types that can be subtracted; a tensor of any other type is quantised or not a weight.
_FLOATS = re.compile(r"^(f|bf|float|bfloat)(8|16|32|64)", re.IGNORECASE)


@dataclass(frozen=True)
class Selection:
    """Which matrices to compare.

    Attributes:
        include: Regular expression; the name must contain a match.
        exclude: Regular expression; the name must not contain a match.
        max_size: Largest number of entries, or None for no limit.
        smallest_side: Matrices with fewer rows or fewer columns are left out.

    Raises:
        InvalidArgumentError: an expression is not valid, or max_size is not a positive integer.
    """

    include: str | None = None
    exclude: str | None = None
    max_size: int | None = None
    smallest_side: int = SMALLEST_SIDE

    def __post_init__(self) -> None:
        for name in ("include", "exclude"):
            pattern = getattr(self, name)
            try:
                re.compile("" if pattern is None else pattern)
            except (re.error, TypeError) as error:
                msg = f"{name} must be a regular expression, not {pattern!r}: {error}"
                raise InvalidArgumentError(msg) from error
        if self.max_size is not None and whole_number("max_size", self.max_size) < 1:
            msg = f"max_size must be at least 1, not {self.max_size}"
            raise InvalidArgumentError(msg)

    def selects(self, name: str) -> bool:
        """Whether include and exclude admit a name."""
        if self.include is not None and not re.search(self.include, name):
            return False
        return self.exclude is None or not re.search(self.exclude, name)


@dataclass
class CheckpointPair:
    """A base and a fine-tuned checkpoint, opened and matched by name.

    Attributes:
        tuned: The fine-tuned side.
        base: The base; None if the fine-tuned side holds increments, as an adapter does.
        names: For each comparable matrix, its name on the fine-tuned side and on the base side.
        skipped: Tensors that are not compared.
        prefix: Prefix that the names of only one side have; usually "".
    """

    tuned: Checkpoint
    base: Checkpoint | None = None
    selection: Selection = field(default_factory=Selection)
    names: dict[str, str] = field(init=False, default_factory=dict)
    skipped: list[Skipped] = field(init=False, default_factory=list)
    prefix: str = field(init=False, default="")

    def __post_init__(self) -> None:
        matched = self._match()
        for name in [*self.tuned.entries, *self.tuned.damaged]:
            if self.selection.selects(name):
                reason = self._obstacle(name, matched)
                if reason is None:
                    self.names[name] = matched.get(name, name)
                else:
                    self.skipped.append(reason)
        for name, why in self.tuned.ignored.items():
            if self.selection.selects(name):
                self.skipped.append(Skipped(name, why))
        if self.base is not None:
            partners = set(matched.values())
            for name in [*self.base.entries, *self.base.damaged]:
                if name not in partners and self.selection.selects(name):
                    self.skipped.append(Skipped(name, "only in the base checkpoint"))

    def _match(self) -> dict[str, str]:
        """Map the name of each fine-tuned tensor that is also in the base to its name there."""
        tuned = [*self.tuned.entries, *self.tuned.damaged]
        if self.base is None:
            return {}
        base = {*self.base.entries, *self.base.damaged}
        plain = {name: name for name in tuned if name in base}
        best, self.prefix = plain, ""
        for prefix, is_longer in _prefixes(tuned, base):
            changed = {
                name: other
                for name in tuned
                if (other := name.removeprefix(prefix) if is_longer else prefix + name) in base
                and (not is_longer or name.startswith(prefix))
            }
            if len(changed) > len(best) - sum(name in changed for name in plain):
                taken = set(changed.values())
                exact = {n: n for n in plain if n not in changed and n not in taken}
                both = {**changed, **exact}
                if len(both) > len(best):
                    best, self.prefix = both, prefix
        if not best:
            msg = "the two checkpoints have no tensor name in common; pass two of the same model"
            raise InvalidArgumentError(msg)
        return best

    def _obstacle(self, name: str, matched: dict[str, str]) -> Skipped | None:
        sides = [(self.tuned, name)]
        if self.base is not None:
            if name not in matched:
                return Skipped(name, "only in the fine-tuned checkpoint")
            sides.append((self.base, matched[name]))
        for side, own in sides:
            if own in side.damaged:
                return Skipped(name, side.damaged[own], damaged=True)
        entries = [side.entries[own] for side, own in sides]
        shape = entries[0].shape
        if len(entries) > 1 and shape != entries[1].shape:
            was, now = ("x".join(map(str, one.shape)) for one in reversed(entries))
            return Skipped(name, f"resized from {was} to {now}")
        reason = None
        if tied := entries[0].tied_to:
            reason = f"tied to {tied}"
        elif unfit := [entry.dtype for entry in entries if not _FLOATS.match(entry.dtype)]:
            reason = f"{unfit[0]} is not a floating type: quantised, or not a weight"
        elif len(shape) != _MATRIX_DIMENSIONS:
            reason = f"not a matrix: {len(shape)} dimensions"
        elif min(shape) < self.selection.smallest_side:
            reason = f"too small: {shape[0]}x{shape[1]}"
        elif shape[0] * shape[1] > _most_entries():
            reason = f"larger than this machine's memory: {shape[0]}x{shape[1]}"
        elif self.selection.max_size is not None and shape[0] * shape[1] > self.selection.max_size:
            reason = f"larger than max_size={self.selection.max_size}: {shape[0]}x{shape[1]}"
        return None if reason is None else Skipped(name, reason)

    @property
    def is_from_files(self) -> bool:
        """Whether both sides are opened by their paths."""
        sides = (self.tuned,) if self.base is None else (self.tuned, self.base)
        return all(not isinstance(side, TensorsCheckpoint) for side in sides)

    @property
    def notes(self) -> dict[str, str]:
        """Remarks on matrices."""
        return {}

    def dtype(self, name: str) -> str:
        """Element type."""
        return self.tuned.entries[name].dtype

    def weights(self, name: str) -> torch.Tensor | None:
        """W₀."""
        return None if self.base is None else self.base.load(self.names[name])

    def fingerprint(self, name: str) -> str:
        """Digest of what the increment is computed from."""
        import hashlib

        increment = self.increment(name).contiguous().numpy()
        return hashlib.blake2b(increment.data, digest_size=16).hexdigest()

    def increment(self, name: str) -> torch.Tensor:
        """ΔW in float32, or in float64 if a side is stored in float64 or float32 cannot hold ΔW.

        Narrow formats are widened, which is exact, before they are subtracted.

        Args:
            name: A key of :attr:`names`.

        Raises:
            DamagedError: a side cannot be read.
            ResourceError: there is not enough memory.
        """
        import torch

        change = self._difference(name, torch.float32)
        if change.dtype == torch.float32 and not torch.stack(change.aminmax()).isfinite().all():
            # The difference of two finite numbers of opposite signs can overflow float32.
            change = self._difference(name, torch.float64)
        return change

    def _difference(self, name: str, wide: torch.dtype) -> torch.Tensor:
        import torch

        tuned = self.tuned.load(name)
        base = None if self.base is None else self.base.load(self.names[name])
        if torch.float64 in (tuned.dtype, None if base is None else base.dtype):
            wide = torch.float64
        kind = tuned.dtype
        try:
            change = tuned.to(wide, copy=True)
            del tuned
            if base is not None:
                # In blocks of rows: the whole widened base would be as large as the increment.
                for rows, other in zip(
                    change.split(_ROWS_AT_ONCE), base.split(_ROWS_AT_ONCE), strict=True
                ):
                    rows.sub_(other.to(wide))
        except NotImplementedError as error:
            msg = f"{name} of type {kind} cannot be widened: {error}"
            raise DamagedError(msg) from error
        except RuntimeError as error:
            # torch reports a lack of memory in this way; the file is not damaged.
            way_out = f"leave it out with max_size={math.prod(self.tuned.entries[name].shape) - 1}"
            msg = f"{name} does not fit into memory ({error}); {way_out}"
            raise ResourceError(msg) from error
        return change


def not_finite(increment: torch.Tensor) -> str | None:
    """Reason why an increment cannot be used, or None if all its entries are finite."""
    # The extremes show whether all entries are finite, without another tensor of that size.
    if all(end.isfinite() for end in increment.aminmax()):
        return None
    bad = int((~increment.isfinite()).sum())
    return f"not finite: {bad} of {increment.numel()} entries are NaN or infinite"


def _check_base(base: Checkpoint, increments: LoraIncrements) -> None:
    """Check that the base has every weight that the adapter changes, in a shape that fits."""
    for name, entry in increments.entries.items():
        found = [one for own, one in base.entries.items() if _same_module(own, name)]
        if not any(one.shape in (entry.shape, entry.shape[::-1]) for one in found):
            shape = "x".join(map(str, entry.shape))
            msg = f"the base has no weight {name} of shape {shape}, which the adapter changes; "
            msg += "pass the base that the adapter was trained on"
            raise InvalidArgumentError(msg)


def _same_module(own: str, name: str) -> bool:
    return own == name or own.endswith(f".{name}") or name.endswith(f".{own}")


def _most_entries() -> int:
    """Largest number of entries of a matrix of which this machine can hold two float32 copies."""
    return psutil.virtual_memory().total // 8


def open_pair(
    first: Source, second: Source | None = None, selection: Selection | None = None
) -> CheckpointPair:
    """Open two checkpoints side by side, or increments alone.

    Args:
        first: The base checkpoint. If ``second`` is None: a LoRA adapter, or ΔW as a 2-D array or
            tensor.
        second: The fine-tuned checkpoint, or a LoRA adapter of the base.
        selection: Which matrices to compare.

    Raises:
        InvalidArgumentError: a source does not exist or is not of a supported kind, or no matrix
            is left.
        ResourceError: a file is damaged or cannot be read.
    """
    chosen = selection or Selection()
    if is_array(first):
        # The caller has chosen this matrix, however small it is.
        chosen = replace(chosen, smallest_side=1)
    adapter = _adapter(first if second is None else second)
    if second is None:
        pair = CheckpointPair(adapter or open_checkpoint(first), None, chosen)
        if adapter is None and not is_array(first):
            what = f"{os.fspath(first)} is" if is_path(first) else "these weights are"
            msg = f"{what} not a LoRA adapter; pass the fine-tuned checkpoint as well"
            raise InvalidArgumentError(msg)
    elif adapter is not None:
        # The adapter holds the whole increment; the base only serves to check that it fits.
        _check_base(open_checkpoint(first), adapter)
        pair = CheckpointPair(adapter, None, chosen)
    else:
        pair = CheckpointPair(open_checkpoint(second), open_checkpoint(first), chosen)
    if not pair.names and not any(one.damaged for one in pair.skipped):
        reasons = Counter(one.reason.partition(":")[0] for one in pair.skipped)
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        msg = f"no matrix is left to compare (left out: {why or 'all, by their names'}); "
        msg += 'change include="...", exclude="..." or max_size="..."'
        raise InvalidArgumentError(msg)
    return pair


def _adapter(source: Source) -> LoraIncrements | None:
    """The LoRA adapter at a path; None for any other source."""
    if not is_path(source):
        return None
    folder = resolve(source)
    return LoraIncrements(folder) if is_adapter(folder) else None


def _prefixes(tuned: list[str], base: set[str]) -> Iterator[tuple[str, bool]]:
    """Prefixes that the names of one side may have, and whether this is the fine-tuned side."""
    for longer, shorter, is_tuned in ((tuned, base, True), (base, set(tuned), False)):
        counts: Counter[str] = Counter()
        for name in longer:
            parts = name.split(".")
            for i in range(1, len(parts)):
                if ".".join(parts[i:]) in shorter:
                    counts[".".join(parts[:i]) + "."] += 1
                    break
        for prefix, _ in counts.most_common(3):
            yield prefix, is_tuned

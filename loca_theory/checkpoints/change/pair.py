"""Two checkpoints side by side: their increments, weights and fingerprints."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.increments import AdapterIncrements
from loca_theory.checkpoints.change.comparable import MatchedPair
from loca_theory.checkpoints.model.view import View
from loca_theory.checkpoints.source.checkpoint import Checkpoint, DamagedError, Reason
from loca_theory.errors import ResourceError

_ROWS_AT_ONCE = 1024
_DIGEST_SIZE = 16
_DOUBLE = ("F64", "float64")
# Two weights that are computed of equal parts, up to their rounding, differ by the rounding of one
# part and of two norms, factors and products: at most 3 times the type's epsilon, to first order.
_ROUNDINGS = 4


UNCHANGED = Reason("unchanged", "every entry of the increment is 0")
"""Why a matrix that is the same on both sides is left out."""


@dataclass
class CheckpointPair(MatchedPair):
    """A base and a fine-tuned checkpoint, opened to read their matrices.

    A pair of files holds only their headers and can be pickled, so that other processes can read
    the matrices by themselves.

    Attributes:
        is_from_files: Whether all tensors are read from files.
    """

    is_from_files: bool = False

    def of_extraction(self) -> CheckpointPair:
        """The same pair with the matrices that an adapter changes."""
        return replace(self, selection=self.selection.of_extraction())

    @property
    def unchecked(self) -> str | None:
        """What of the names is not checked, and why; None of an adapter, which has its model's."""
        return None if isinstance(self.tuned, AdapterIncrements) else self.model.unchecked

    @property
    def prefix(self) -> str:
        """Prefix that the stored names of only one side have; usually ""."""
        return self.tuned.prefix if isinstance(self.tuned, View) else ""

    def __getstate__(self) -> dict[str, Any]:
        # Other processes do not need the model.
        return {**self.__dict__, "model": None}

    @property
    def adapted(self) -> Checkpoint:
        """The base of an adapter, under whose names its increments are; empty if there is none."""
        return self.tuned.base if isinstance(self.tuned, AdapterIncrements) else Checkpoint()

    def increment(self, name: str) -> torch.Tensor:
        """ΔW in float32, or in float64 if a side is stored in float64 or float32 cannot hold ΔW.

        Narrow formats are widened, which is exact, before they are subtracted. The caller may
        overwrite the result.
        """
        change = self._difference(name, torch.float32)
        if change.dtype == torch.float32 and not torch.stack(change.aminmax()).isfinite().all():
            # The difference of two finite numbers of opposite signs can overflow float32.
            change = self._difference(name, torch.float64)
        return change

    def factors(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Two matrices in float64 whose product is ΔW, if an adapter stores it so; else None."""
        side = self.tuned
        is_adapter = isinstance(side, AdapterIncrements)
        return side.factors(self.matrices[name].tensor) if is_adapter else None

    def weights(self, name: str) -> torch.Tensor | None:
        """W₀, the matrix to which ΔW is added; None if it is not known.

        It is in float32, or in float64 if it is stored in float64. The caller may overwrite it.
        """
        _, *bases = self._holders(name)
        if not bases:
            return None
        stored = self.matrices[name].load(bases[0])
        wide = torch.float64 if stored.dtype == torch.float64 else torch.float32
        with self._memory(name, stored.dtype):
            return stored.to(wide, copy=True)

    def fingerprint(self, name: str) -> str:
        """BLAKE2b digest, 16 bytes in hexadecimal, of all from which ΔW and W₀ are computed.

        It covers the bytes, types and shapes of the stored tensors of both sides, scales included,
        and the shape of the increment.
        """
        matrix = self.matrices[name]
        digest = hashlib.blake2b(repr(matrix.shape).encode(), digest_size=_DIGEST_SIZE)
        for side in self._holders(name):
            digest.update(b"side")
            _add_stored(digest, side, matrix.tensor, matrix.expert)
        return digest.hexdigest()

    def is_identical(self) -> bool:
        """Whether both sides store the same tensors, to the bit; False if one cannot be read."""
        if self.base is None or self.tuned.left_out or self.base.left_out:
            return False
        sides = self.tuned, self.base
        if self.tuned.entries.keys() != self.base.entries.keys():
            return False

        def digest(side: Checkpoint, name: str) -> bytes:
            stored = hashlib.blake2b(digest_size=_DIGEST_SIZE)
            _add_stored(stored, side, name, None)
            return stored.digest()

        names = self.tuned.entries
        return all(len({digest(side, name) for side in sides}) == 1 for name in names)

    def changed_outside(self, names: Collection[str]) -> list[str]:
        """Selected tensors of the fine-tune that the base has not, or not so, the largest first.

        Args:
            names: Tensors that are not asked about.
        """
        if self.base is None:
            return []
        base, entries = self.base, self.tuned.entries
        changed = [
            name
            for name, entry in entries.items()
            if name not in names
            and entry.tied_to is None
            and self.selection.selects(name)
            and not (
                name in base.entries
                and torch.equal(wider(self.tuned.load(name)), wider(base.load(name)))
            )
        ]
        return sorted(changed, key=lambda name: -math.prod(entries[name].shape))

    def stored_name(self, name: str) -> str:
        """Name under which the base, or else the fine-tuned side, stores a matrix.

        Random numbers are drawn by it, so that they do not depend on the model.
        """
        matrix, (*_, side) = self.matrices[name], self._holders(name)
        stored = side.stored_name(matrix.tensor)
        return stored if matrix.expert is None else f"{stored}[{matrix.expert}]"

    def _holders(self, name: str) -> list[Checkpoint]:
        """The fine-tuned side, and the side with W₀ if it is known."""
        base = self.base or self.adapted
        return [self.tuned, *([base] if self.matrices[name].tensor in base.entries else [])]

    def _difference(self, name: str, wide: torch.dtype) -> torch.Tensor:
        matrix = self.matrices[name]
        tuned = matrix.load(self.tuned)
        bases = [] if self.base is None else [self.base]
        entries = [side.entries[matrix.tensor] for side in (self.tuned, *bases)]
        is_computed = any(entry.is_computed for entry in entries)
        if tuned.dtype == torch.float64 or any(entry.dtype in _DOUBLE for entry in entries[1:]):
            wide = torch.float64
        with self._memory(name, tuned.dtype):
            change = tuned.to(wide, copy=not entries[0].is_computed)
            # The base is loaded after the other side is let go, so that there are never three.
            del tuned
            for base in bases:
                # In blocks of rows: the whole widened base would be as large as the increment.
                for rows, other in zip(
                    change.split(_ROWS_AT_ONCE), matrix.load(base).split(_ROWS_AT_ONCE), strict=True
                ):
                    rows.sub_(other.to(wide))
                    if is_computed:
                        rows.masked_fill_(
                            rows.abs() <= _ROUNDINGS * torch.finfo(wide).eps * other.abs(), 0
                        )
        return change

    @contextmanager
    def _memory(self, name: str, kind: torch.dtype) -> Iterator[None]:
        """Say which matrix cannot be widened, or does not fit into memory."""
        try:
            yield
        except NotImplementedError as error:
            raise DamagedError(f"{name} of type {kind} cannot be widened: {error}") from error
        except RuntimeError as error:
            # torch reports a lack of memory in this way; the file is not damaged.
            way_out = f"leave it out with max_size={math.prod(self.matrices[name].shape) - 1}"
            raise ResourceError(f"{name} does not fit into memory ({error}); {way_out}") from error


def _add_stored(digest: Any, side: Checkpoint, name: str, expert: int | None) -> None:
    """Add the stored tensors of which a tensor is made to a digest, with types and shapes."""
    for tensor in side.stored(name, expert):
        digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
        flat = tensor.detach().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)


def check_finite(increment: torch.Tensor) -> None:
    """Refuse an increment with entries that are not finite."""
    # The extremes show whether all entries are finite, without another tensor of that size.
    if not all(end.isfinite() for end in increment.aminmax()):
        bad = int((~increment.isfinite()).sum())
        entries = f"{bad} of {increment.numel()} entries are NaN or infinite"
        raise DamagedError(Reason("not finite", entries))


def wider(tensor: torch.Tensor) -> torch.Tensor:
    """A floating-point tensor of 8 bits in float32, since torch does not compute in 8."""
    is_narrow = tensor.is_floating_point() and tensor.element_size() == 1
    return tensor.float() if is_narrow else tensor

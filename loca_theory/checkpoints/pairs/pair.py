"""Two checkpoints side by side: their increments, weights and fingerprints."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.pairs.comparable import MatchedPair
from loca_theory.checkpoints.weights.checkpoint import Checkpoint, DamagedError
from loca_theory.errors import ResourceError

_ROWS_AT_ONCE = 1024
_DIGEST_SIZE = 16
_DOUBLE = ("F64", "float64")
# Two weights that are computed of equal parts, up to their rounding, differ by the rounding of one
# part and of two norms, factors and products: at most 3 times the type's epsilon, to first order.
_ROUNDINGS = 4


@dataclass
class CheckpointPair(MatchedPair):
    """A base and a fine-tuned checkpoint, opened to read their matrices.

    A pair of files holds only their headers and can be pickled, so that other processes can read
    the matrices by themselves.

    Attributes:
        is_from_files: Whether all tensors are read from files.
    """

    is_from_files: bool = False

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
        side, own = self.tuned, self.matrices[name].tuned
        return side.factors(own) if isinstance(side, AdapterIncrements) else None

    def weights(self, name: str) -> torch.Tensor | None:
        """W₀, the matrix to which ΔW is added; None if it is not known.

        It is in float32, or in float64 if it is stored in float64. The caller may overwrite it.
        """
        _, *others = self._sides(name)
        if not others:
            return None
        found = self.matrices[name].load(*others[0])
        wide = torch.float64 if found.dtype == torch.float64 else torch.float32
        with self._memory(name, found.dtype):
            return found.to(wide, copy=True)

    def fingerprint(self, name: str) -> str:
        """BLAKE2b digest, 16 bytes in hexadecimal, of all from which ΔW and W₀ are computed.

        It covers the bytes, types and shapes of the stored tensors of both sides, scales included,
        and the shape of the increment.
        """
        digest = hashlib.blake2b(repr(self.matrices[name].shape).encode(), digest_size=_DIGEST_SIZE)
        for side, own in self._sides(name):
            digest.update(b"side")
            _add_stored(digest, side, own, self.matrices[name].expert)
        return digest.hexdigest()

    def is_identical(self) -> bool:
        """Whether both sides store the same tensors, to the bit; False if one cannot be read."""
        if self.base is None or self.tuned.left_out or self.base.left_out:
            return False
        if not len(self.partners) == len(self.tuned.entries) == len(self.base.entries):
            return False
        sides = self.tuned, self.base

        def digest(side: Checkpoint, name: str) -> bytes:
            found = hashlib.blake2b(digest_size=_DIGEST_SIZE)
            _add_stored(found, side, name, None)
            return found.digest()

        return all(len(set(map(digest, sides, names))) == 1 for names in self.partners.items())

    def _sides(self, name: str) -> list[tuple[Checkpoint, str]]:
        """The fine-tuned tensor, and that to which its increment is added if it is known."""
        found, base = self.matrices[name], self.base or self.adapted
        known = [(base, found.base)] if found.base in base.entries else []
        return [(self.tuned, found.tuned), *known]

    def _difference(self, name: str, wide: torch.dtype) -> torch.Tensor:
        (side, mine), *others = self._sides(name)
        tuned = self.matrices[name].load(side, mine)
        bases = others if self.base is not None else []
        stored = [one.entries[own] for one, own in bases]
        is_computed = any(entry.is_computed for entry in (side.entries[mine], *stored))
        if tuned.dtype == torch.float64 or any(entry.dtype in _DOUBLE for entry in stored):
            wide = torch.float64
        with self._memory(name, tuned.dtype):
            change = tuned.to(wide, copy=not side.entries[mine].is_computed)
            # The base is loaded after the other side is let go, so that there are never three.
            del tuned
            for base, own in bases:
                weights = self.matrices[name].load(base, own)
                # In blocks of rows: the whole widened base would be as large as the increment.
                for rows, other in zip(
                    change.split(_ROWS_AT_ONCE), weights.split(_ROWS_AT_ONCE), strict=True
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
            msg = f"{name} of type {kind} cannot be widened: {error}"
            raise DamagedError(msg) from error
        except RuntimeError as error:
            # torch reports a lack of memory in this way; the file is not damaged.
            way_out = f"leave it out with max_size={math.prod(self.matrices[name].shape) - 1}"
            msg = f"{name} does not fit into memory ({error}); {way_out}"
            raise ResourceError(msg) from error


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
        msg = f"not finite: {bad} of {increment.numel()} entries are NaN or infinite"
        raise DamagedError(msg)

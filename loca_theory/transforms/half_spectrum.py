"""Indices of the independent entries of the DFT of a real matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError


@dataclass(frozen=True)
class HalfSpectrum:
    r"""The non-redundant half of the DFT of a real p×q matrix.

    ``F[-i, -j] == conj(F[i, j])``, so the pq entries fall into s *self-conjugate* ones (their own
    partners, real) and m pairs, :math:`s + 2m = pq`. An entry is self-conjugate if
    :math:`i \in \{0, p/2\}` and :math:`j \in \{0, q/2\}` (p/2 and q/2 only if integer), hence
    :math:`s = (1 + [p \text{ even}])(1 + [q \text{ even}])`.

    One member of each pair is its *representative*: the member with ``j < q - j``, or with
    ``i < p - i`` if the column is its own mirror image. This is the complement of the appendix's
    "condition U" (read with 0-based indices and n as K).

    Attributes:
        p: Rows, at least 1.
        q: Columns, at least 1.
    """

    p: int
    q: int

    def __post_init__(self) -> None:
        if self.p < 1 or self.q < 1:
            raise InvalidArgumentError(
                f"a half spectrum needs at least one row and one column, not {self.p}x{self.q}"
            )

    @property
    def self_conjugate_count(self) -> int:
        """The number s of self-conjugate entries: 1, 2 or 4."""
        return (1 + (self.p % 2 == 0)) * (1 + (self.q % 2 == 0))

    @property
    def pair_count(self) -> int:
        """The number m of conjugate pairs, (pq − s)/2."""
        return (self.p * self.q - self.self_conjugate_count) // 2

    @property
    def location_count(self) -> int:
        """The number s + m of locations that can be chosen independently."""
        return self.self_conjugate_count + self.pair_count

    @property
    def self_conjugate(self) -> NDArray[np.int64]:
        """(s, 2) rows and columns of the self-conjugate entries."""
        rows, columns = (range(n)[own_indices(n)] for n in (self.p, self.q))
        return np.array([(i, j) for i in rows for j in columns], dtype=np.int64)

    @property
    def representatives(self) -> NDArray[np.int64]:
        """(m, 2) rows and columns of one member of each pair, in row-major order."""
        return np.argwhere(self.is_representative)

    @property
    def is_representative(self) -> NDArray[np.bool_]:
        """Marks the representatives among the columns 0 .. q//2, which hold all of them."""
        is_representative = np.zeros((self.p, self.q // 2 + 1), dtype=bool)
        is_representative[:, 1 : (self.q + 1) // 2] = True
        is_representative[1 : (self.p + 1) // 2, own_indices(self.q)] = True
        return is_representative


def own_indices(n: int) -> slice:
    """The indices that are their own mirror image: 0, and n/2 if n is even."""
    return slice(0, None, n // 2) if n % 2 == 0 else slice(0, 1)

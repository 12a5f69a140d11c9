"""How many numbers each method may retain when LoRA of rank r spends N0 = (p+q)·r.

Theorem 1 compares methods "at the same budget", which leaves open what is counted. Every
accounting here is a rule that turns (method, shape, rank) into a whole number of retained items,
rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from loca_theory._arguments import make_whole
from loca_theory._lookup import member
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.half_spectrum import HalfSpectrum

# Above this, float64 cannot represent every whole number.
_MOST_ENTRIES = 2**53


class Accounting(StrEnum):
    """Rules for counting a budget.

    - ``paper``: an index costs as much as a number. The budget buys N0/2 random locations (two
      numbers each, with indices from a seed), N0/3 chosen locations or N0/2 chosen coefficients.
    - ``main-text``: as ``paper``, but N2 = 2/3·N0 *locations*, the other interpretation of the main
      text. Under it the last inequality of Theorem 1 reverses.
    - ``trainable``: only trainable numbers count, as users of adapters count; locations are free.
    - ``dof``: as ``paper``, but LoRA is charged the r(p+q−r) degrees of freedom of a rank-r matrix.
    - ``bits``: stored bits count: ``value_bits`` for a value, and log2 of the number of locations
      for an index.
    """

    PAPER = "paper"
    MAIN_TEXT = "main-text"
    TRAINABLE = "trainable"
    DOF = "dof"
    BITS = "bits"


@dataclass(frozen=True)
class Budget:
    """The budget of LoRA at one rank and shape, converted into counts for every other method.

    Attributes:
        p: Rows.
        q: Columns.
        r: LoRA's rank, 1 ≤ r ≤ min(p, q).
        accounting: How the budget is counted.
        value_bits: Bits of one stored number; used by ``bits`` and by the method ``RD``.

    Raises:
        InvalidArgumentError: a number is not whole or out of range, the accounting is unknown, or
            the rank-r factors hold more numbers than the matrix itself.

    Source: the paper's section "Comparison between frequency-space and low-rank Adaptation" and the
    proof of Theorem 1; N0, N1, N2 and N3 there.
    """

    p: int
    q: int
    r: int
    accounting: Accounting = Accounting.PAPER
    value_bits: int = 16

    def __post_init__(self) -> None:
        make_whole(self, "p", "q", "r", "value_bits")
        if not isinstance(self.accounting, Accounting):
            chosen = member(Accounting, "accounting", self.accounting)
            object.__setattr__(self, "accounting", chosen)
        if self.p < 1 or self.q < 1:
            msg = f"a matrix needs at least one row and one column, not {self.p}x{self.q}"
            raise InvalidArgumentError(msg)
        if self.p * self.q > _MOST_ENTRIES:
            msg = f"a {self.p}x{self.q} matrix has too many entries to count in float64; "
            msg += f"choose at most {_MOST_ENTRIES}"
            raise InvalidArgumentError(msg)
        if not 1 <= self.r <= min(self.p, self.q):
            msg = f"rank {self.r} does not fit a {self.p}x{self.q} matrix: "
            msg += f"choose 1 <= r <= {min(self.p, self.q)}"
            raise InvalidArgumentError(msg)
        if self.value_bits < 1:
            msg = f"value_bits must be at least 1, not {self.value_bits}"
            raise InvalidArgumentError(msg)
        if self.numbers > self.p * self.q:
            largest = self.p * self.q // (self.p + self.q)
            msg = f"budget larger than the matrix: rank {self.r} spends {self.numbers} numbers, "
            msg += f"but a {self.p}x{self.q} matrix has only {self.p * self.q}; "
            msg += f"choose r <= {largest}" if largest else "choose a larger matrix"
            raise InvalidArgumentError(msg)

    @property
    def numbers(self) -> int:
        """N0 = (p+q)·r, or r(p+q−r) under ``dof``."""
        if self.accounting is Accounting.DOF:
            return self.r * (self.p + self.q - self.r)
        return (self.p + self.q) * self.r

    @property
    def bits(self) -> int:
        """Bits that LoRA's factors occupy, value_bits·(p+q)·r."""
        return self.value_bits * (self.p + self.q) * self.r

    @property
    def half(self) -> HalfSpectrum:
        """The independent locations of the matrix's DFT."""
        return HalfSpectrum(self.p, self.q)

    @property
    def random_locations(self) -> int:
        """Number of locations of F1: two numbers each, with indices from a seed."""
        if self.accounting is Accounting.BITS:
            return self.bits // (2 * self.value_bits)
        return self.numbers // 2

    @property
    def random_coefficients(self) -> int:
        """Number of coefficients of V1 and FourierFT: one number each, seeded indices."""
        return self.bits // self.value_bits if self.accounting is Accounting.BITS else self.numbers

    @property
    def chosen_locations(self) -> int:
        """Number of locations of F2 and of its brackets M1, M2: two numbers and an index each.

        Raises:
            InvalidArgumentError: the half spectrum has fewer locations.
        """
        match self.accounting:
            case Accounting.MAIN_TEXT:
                count = 2 * self.numbers // 3
            case Accounting.TRAINABLE:
                count = self.numbers // 2
            case Accounting.BITS:
                index = math.log2(self.half.location_count)
                count = math.floor(self.bits / (2 * self.value_bits + index))
            case _:
                count = self.numbers // 3
        if count > self.half.location_count:
            msg = f"budget larger than the matrix: {count} locations, but the half "
            msg += f"spectrum of {self.p}x{self.q} has only {self.half.location_count}; "
            msg += 'lower r, or use accounting="paper"'
            raise InvalidArgumentError(msg)
        return count

    @property
    def chosen_coefficients(self) -> int:
        """Number of coefficients of F3, D and S: one number and an index each."""
        match self.accounting:
            case Accounting.TRAINABLE:
                return self.numbers
            case Accounting.BITS:
                index = math.log2(self.p * self.q)
                return math.floor(self.bits / (self.value_bits + index))
            case _:
                return self.numbers // 2

"""How many numbers each method may retain when LoRA of rank r spends N0 = (p+q)·r.

Theorem 1 compares methods "at the same budget", but leaves open what is charged to the budget. An
:class:`Accounting` is a rule for this. From the shape and LoRA's rank it gives the number of
coefficients or locations that each method may retain, rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from loca_theory._arguments import fields_to_int
from loca_theory._lookup import member
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.bits import NUMBER_BITS, location_bits
from loca_theory.transforms.half_spectrum import HalfSpectrum

# Above this, float64 cannot represent every whole number.
_MOST_ENTRIES = 2**53


class Accounting(StrEnum):
    """Rules for what is charged to a budget.

    - ``paper``: a number costs 1, and so does the index of a chosen location; random indices come
      from a seed and are free. The budget pays for N0/2 random locations (two numbers each), N0/3
      chosen locations (two numbers and an index) or N0/2 chosen coefficients (one and an index).
    - ``main-text``: as ``paper``, but the number of chosen locations is N2 = 2/3·N0, the other
      interpretation of the main text. With it, the last inequality of Theorem 1 is reversed.
    - ``trainable``: a trainable number costs 1, as is usual for adapters; all indices are free.
    - ``dof``: as ``paper``, but N0 = r(p+q−r), the degrees of freedom of a rank-r matrix.
    - ``bits``: a number costs ``value_bits`` bits, and the index of a chosen location costs log2 of
      the number of locations; see :mod:`loca_theory.expressivity.bits`.
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
        accounting: What is charged to the budget.
        value_bits: Bits of one stored number; used by ``bits`` and by ``rate-distortion``.

    Raises:
        InvalidArgumentError: p, q, r or value_bits is not a whole number or is out of range, the
            accounting is unknown, or N0 is larger than the number of entries of the matrix.

    Source: the paper's section "Comparison between frequency-space and low-rank Adaptation" and the
    proof of Theorem 1, which calls the budget N0 and the counts N1, N2 and N3.
    """

    p: int
    q: int
    r: int
    accounting: Accounting = Accounting.PAPER
    value_bits: int = NUMBER_BITS

    def __post_init__(self) -> None:
        fields_to_int(self, "p", "q", "r", "value_bits")
        vars(self).update(accounting=member(Accounting, "accounting", self.accounting))
        if self.p < 1 or self.q < 1:
            raise InvalidArgumentError(
                f"a matrix needs at least one row and one column, not {self.p}x{self.q}"
            )
        if self.p * self.q > _MOST_ENTRIES:
            raise InvalidArgumentError(
                f"a {self.p}x{self.q} matrix has too many entries to count in float64; "
                f"choose one with at most {_MOST_ENTRIES} entries"
            )
        largest = self.p * self.q // (self.p + self.q)
        if self.accounting is Accounting.DOF:
            largest = min(self.p, self.q)
        way_out = f"choose 1 <= r <= {largest}" if largest else "choose a larger matrix"
        if not 1 <= self.r <= min(self.p, self.q):
            raise InvalidArgumentError(
                f"rank {self.r} does not fit a {self.p}x{self.q} matrix: {way_out}"
            )
        if self.value_bits < 1:
            raise InvalidArgumentError(f"value_bits must be at least 1, not {self.value_bits}")
        if self.numbers > self.p * self.q:
            raise InvalidArgumentError(
                f"budget larger than the matrix: rank {self.r} spends {self.numbers} numbers, "
                f"but a {self.p}x{self.q} matrix has only {self.p * self.q}; {way_out}"
            )

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
    def half_spectrum(self) -> HalfSpectrum:
        """The independent locations of the matrix's DFT."""
        return HalfSpectrum(self.p, self.q)

    @property
    def random_locations(self) -> int:
        """Number of locations of random Fourier. Each costs two numbers, but no index."""
        return self.numbers // 2

    @property
    def random_coefficients(self) -> int:
        """Number of random coefficients of random DCT and FourierFT. Each costs one number."""
        return self.numbers

    @property
    def chosen_locations(self) -> int:
        """Number of chosen locations of Fourier pairs and of the bounds on their error.

        Each location costs two numbers and an index.

        Raises:
            InvalidArgumentError: the half spectrum has fewer locations.
        """
        is_main_text = self.accounting is Accounting.MAIN_TEXT
        candidates = self.half_spectrum.location_count
        count = 2 * self.numbers // 3 if is_main_text else self.chosen(2, candidates)
        if count > candidates:
            raise InvalidArgumentError(
                f"budget larger than the matrix: {count} locations, but the half "
                f"spectrum of {self.p}x{self.q} has only {candidates}; "
                'lower r, or use accounting="paper"'
            )
        return count

    @property
    def chosen_coefficients(self) -> int:
        """Number of chosen coefficients of Fourier, LoCA and entries.

        Each coefficient costs one number and an index.
        """
        return self.chosen(1, self.p * self.q)

    def chosen(self, numbers_each: int, candidates: int) -> int:
        """How many candidates are paid for, at ``numbers_each`` numbers and an index each."""
        match self.accounting:
            case Accounting.TRAINABLE:
                return self.numbers // numbers_each
            case Accounting.BITS:
                cost = numbers_each * self.value_bits + location_bits(candidates)
                return math.floor(self.bits / cost)
            case _:
                return self.numbers // (numbers_each + 1)

"""Size of the adapters of an extraction: the same for all matrices, or split among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.allocation import (
    Allocation,
    allocate,
    allocate_energy,
    check_fraction,
)
from loca_theory.checkpoints.energy_profile import EnergyProfile
from loca_theory.checkpoints.profile_choice import choose_profiles
from loca_theory.checkpoints.total_size import TotalSize
from loca_theory.errors import InvalidArgumentError

Method = Literal["loca", "lora"]
TITLES = {"loca": "LoCA", "lora": "LoRA"}
_CHOICES = {**TITLES, "best": "the better of the two"}
# More than any matrix has; larger numbers do not fit the integers of NumPy.
_MOST = 2**53


@dataclass(frozen=True)
class AdapterSize:
    """Size of an adapter; see :func:`~loca_theory.checkpoints.extract`.

    Raises:
        InvalidArgumentError: the method is unknown, there is not exactly one size, or a value is
            out of range.
    """

    method: str
    rank: int | None = None
    components: int | None = None
    allocate: int | str | TotalSize | None = None
    energy: float | None = None
    floor: int = 0
    cap: int | None = None

    def __post_init__(self) -> None:
        find("method", self.method, _CHOICES)
        for name in ("rank", "components", "cap"):
            if getattr(self, name) is not None:
                _arguments.fields_to_int(self, name)
                if getattr(self, name) < 1:
                    msg = f"{name} must be at least 1, not {getattr(self, name)}"
                    raise InvalidArgumentError(msg)
        if self.components is not None and self.method != "loca":
            msg = "components is for LoCA only; give the size of another adapter as a rank, "
            msg += "such as rank=8"
            raise InvalidArgumentError(msg)
        sizes = (self.rank, self.components, self.allocate, self.energy)
        if sum(size is not None for size in sizes) != 1:
            either = "rank=8, components=1000" if self.method == "loca" else "rank=8"
            msg = "the adapter needs exactly one size; pass one of "
            msg += f'{either}, allocate="4MB" or energy=0.9'
            raise InvalidArgumentError(msg)
        if self.allocate is not None:
            object.__setattr__(self, "allocate", TotalSize.parse(self.allocate))
        elif self.energy is not None:
            check_fraction(self.energy)
        self._check_limits()

    def _check_limits(self) -> None:
        _arguments.fields_to_int(self, "floor")
        if self.cap is not None:
            object.__setattr__(self, "cap", min(self.cap, _MOST))
        if not 0 <= self.floor <= (_MOST if self.cap is None else self.cap):
            msg = (
                f"floor must be from 0 to {_MOST if self.cap is None else 'cap'}, not {self.floor}"
            )
            raise InvalidArgumentError(msg)
        if self.floor or self.cap is not None:
            if not self.is_split:
                msg = 'floor and cap limit the sizes of a split; pass allocate="4MB" or energy=0.9'
                msg += " as well"
                raise InvalidArgumentError(msg)
            if self.method == "best":
                msg = "floor and cap count ranks or coefficients, which method best mixes; choose "
                msg += "one method"
                raise InvalidArgumentError(msg)

    @property
    def is_split(self) -> bool:
        """Whether the sizes of the matrices depend on their increments."""
        return self.allocate is not None or self.energy is not None

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that a matrix can have."""
        return ("lora", "loca") if self.method == "best" else (self.method,)  # type: ignore[return-value]

    def count(self, method: str, p: int, q: int) -> int:
        """LoRA's rank, or the number of LoCA's coefficients, for a p×q matrix of a fixed size."""
        if method == "lora":
            return min(self.rank or 0, p, q)
        return min(self.components or (p + q) * (self.rank or 0) // 2, p * q)

    def split(
        self, profiles: Mapping[str, Mapping[str, EnergyProfile]]
    ) -> tuple[dict[str, str], Allocation]:
        """The method of each matrix, and the sizes.

        Args:
            profiles: For each matrix, its profile by method, in the unit of the total.

        Raises:
            InvalidArgumentError: the total is too small, or no sizes retain the energy.
        """
        total = self.allocate.amount if isinstance(self.allocate, TotalSize) else None
        several = [list(one.values()) for one in profiles.values()]
        choices = [choose_profiles(several, total, self.energy)]
        # One method for all may fill the total better than the mixture does.
        choices += [[min(i, len(one) - 1) for one in several] for i in range(len(self.methods))]
        found: list[tuple[list[int], Allocation]] = []
        obstacle = None
        for which in choices:
            chosen = [one[i] for one, i in zip(several, which, strict=True)]
            try:
                found.append((which, self._allocated(chosen, total)))
            except InvalidArgumentError as error:
                obstacle = obstacle or error
        if obstacle is not None and not found:
            raise obstacle
        if total is not None:
            best, allocation = max(found, key=lambda one: one[1].retained)
        else:
            best, allocation = min(found, key=lambda one: one[1].spent)
        methods = {
            name: list(one)[i] for (name, one), i in zip(profiles.items(), best, strict=True)
        }
        return methods, allocation

    def _allocated(self, chosen: list[EnergyProfile], total: int | None) -> Allocation:
        if total is not None:
            return allocate(chosen, total, floor=self.floor, cap=self.cap)
        return allocate_energy(chosen, self.energy or 0.0, floor=self.floor, cap=self.cap)

    def cost(self, method: str, shape: tuple[int, ...], number_bytes: int) -> int:
        """Cost of a rank or a coefficient, in the unit of the total; by default trainable numbers.

        Args:
            method: ``lora`` or ``loca``.
            shape: (p, q).
            number_bytes: Bytes of a stored number.
        """
        unit = self.allocate if isinstance(self.allocate, TotalSize) else TotalSize(1)
        if method == "lora":
            return unit.cost_of_number(number_bytes) * sum(shape)
        return unit.cost_of_component(number_bytes)

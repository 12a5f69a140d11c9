"""What all forms of adapters have in common; each form is a module of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from loca_theory.checkpoints.form.change import Change
from loca_theory.checkpoints.form.config import usual_size
from loca_theory.checkpoints.form.inside import Inside
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.source.checkpoint import Reason
from loca_theory.expressivity import Budget
from loca_theory.rounding import Choice


@dataclass(frozen=True)
class Fit:
    """The best adapter of one layer.

    Attributes:
        form: Key of its form.
        size: Its size: the rank of LoRA or SHiRA, or the number of LoCA's coefficients.
        tensors: The parameters, on the CPU, by the last parts of their names in PEFT.
        error: Relative squared error with the parameters as they are stored.
        gap: Bound of how much smaller the error of any adapter of this size is, apart from the
            rounding of the stored numbers.
        energy: Energy of the increment.
        inside: How the adapter lies to the rounding cells; None if they were not looked into.
    """

    form: str
    size: int
    tensors: dict[str, Any]  # of torch, which pydantic does not know
    error: float
    gap: float
    energy: float
    inside: Inside | None = None

    @property
    def nearest_error(self) -> float:
        """Error of the adapter of this form and size that is nearest to the stored difference."""
        return self.error if self.inside is None else self.inside.nearest_error

    @property
    def retained(self) -> float:
        """Energy of the stored difference that the nearest adapter of this size retains."""
        return self.energy * (1 - self.nearest_error)

    def beside(
        self, nearest: Fit, form: str, choice: Choice, distance: Callable[[Fit], float]
    ) -> Fit:
        """The same adapter with what is known of rounding cells.

        Args:
            nearest: The adapter that is nearest to the stored difference.
            form: The format of the fine-tune.
            choice: How the adapter was found.
            distance: The squared distance of an adapter to the cells, relative to the energy.
        """
        before = distance(nearest)
        inside = Inside(
            format=form,
            steps=choice.steps,
            distance=distance(self) if choice.steps else before,
            nearest_error=nearest.error,
            nearest_distance=before,
            held_out=choice.held_out,
        )
        return replace(self, gap=self.error - nearest.error + nearest.gap, inside=inside)


class AdapterType(ABC):
    """A type of adapter that PEFT trains and an analysis can propose.

    Attributes:
        key: Name in commands, tables and folders; of a type that is only trained, the name of the
            form that has the same layers.
        title: Its name in messages, and in the card of an adapter.
        words: What retains energy, in a sentence.
        verb: What follows these words.
        method: Key of the method whose error on an increment is that of this adapter.
        config_class: Package and name of PEFT's configuration.
        size_setting: The setting of PEFT for the size.
        pattern_setting: The setting for the sizes of some modules; "" if all have the same.
        remark: A line for the source of a proposed configuration; usually "".
    """

    key: ClassVar[str]
    title: ClassVar[str]
    words: ClassVar[str]
    verb: ClassVar[str] = "retains"
    method: ClassVar[str]
    config_class: ClassVar[tuple[str, str]]
    size_setting: ClassVar[str] = "r"
    pattern_setting: ClassVar[str] = ""
    remark: ClassVar[str] = ""

    @abstractmethod
    def size_of_budget(self, budget: Budget) -> int:
        """The size of one layer that a budget pays for."""

    def settings(self, sizes: Mapping[str, int], usual: int = 0) -> dict[str, Any]:
        """PEFT's settings for the sizes of modules, of which the usual one is the most frequent."""
        size, exceptions = usual_size(sizes, usual)
        patterns = {self.pattern_setting: exceptions} if self.pattern_setting else {}
        return {self.size_setting: size, **patterns}

    def proposed_settings(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """Settings with which PEFT trains an adapter of these sizes."""
        return self.settings(sizes)


class Form(AdapterType):
    """A form of adapters of which the best for an increment is known.

    Attributes:
        size_name: Column of the size: ``r`` or ``components``.
        unit_name: What the size counts.
        location_bytes: Bytes of the location of a number.
        layer_bytes: Bytes that a layer needs besides its numbers.
        one_size: Why all layers have one size, so that a total is not split; "" if they need not.
        is_served: Whether llama.cpp and vLLM read it.
        constants: Settings of an extracted adapter that do not depend on the sizes.
    """

    size_name: ClassVar[str] = "r"
    unit_name: ClassVar[str] = "rank"
    location_bytes: ClassVar[int] = 0
    layer_bytes: ClassVar[int] = 0
    one_size: ClassVar[str] = ""
    is_served: ClassVar[bool] = False
    constants: ClassVar[Mapping[str, Any]] = {}

    def obstacle(self, layer: Layer, rank: int = 0) -> Reason | None:  # noqa: ARG002
        """Why a layer can have no adapter of this form, at a rank; None if it can."""
        return layer.obstacle

    def check_rank(self, rank: int, layers: Sequence[Layer]) -> None:
        """Refuse a rank that fits none of the layers."""

    def unit(self, layer: Layer) -> int:
        """Trainable numbers of one unit of size: p + q, as a rank of LoRA has."""
        return sum(layer.sides)

    def numbers(self, layer: Layer, size: int) -> int:
        """Trainable numbers of a size."""
        return size * self.unit(layer)

    @abstractmethod
    def largest(self, layer: Layer) -> int:
        """The largest size that a layer can have."""

    def size_of_rank(self, layer: Layer, rank: int) -> int:  # noqa: ARG002
        """The size that a rank stands for."""
        return rank

    def costs(self, layer: Layer, number_bytes: int | None) -> tuple[int, int]:
        """Cost of a unit, and of any size above 0 besides: in bytes if the type is known."""
        if number_bytes is None:
            return self.unit(layer), 0
        return self.unit(layer) * (number_bytes + self.location_bytes), self.layer_bytes

    @abstractmethod
    def profile(self, change: Change) -> tuple[list[int], list[float]]:
        """Sizes, from the smallest to the largest, and the energy that each retains."""

    @abstractmethod
    def fit(self, change: Change, size: int, usual: int, dtype: torch.dtype) -> Fit:
        """The best adapter of a size; ``usual`` is that of most layers, 0 if this one counts."""

    def config(self, sizes: Mapping[str, int], usual: int, **common: Any) -> dict[str, Any]:  # noqa: ARG002
        """Configuration of an adapter with these sizes of its modules, and with what is common."""
        kind = {"peft_type": self.title.upper(), "inference_mode": True}
        return {**kind, **common, **self.settings(sizes), **self.constants}

    def has_parameter(self, name: str) -> bool:
        """Whether a tensor of an adapter is a parameter of this form."""
        return f".{self.title.lower()}_" in name

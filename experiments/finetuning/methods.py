"""All fine-tuning methods, their learning rates, and the budgets that they can express.

The budget of rank r is the number of parameters that LoRA of this rank trains in each target layer
of shape p×q, (p + q)·r. FourierFT, WaveFT, SHiRA, C3A and LoCA get as many coefficients; AdaLoRA
ends with a mean rank of r; DoRA trains magnitudes in addition; VeRA gets the budget up to its rank
of 256. The numbers that each method trains and stores are counted and reported.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loca_theory._lookup import find
from loca_theory.adapters.search.settings import is_prune_and_regrow
from loca_theory.errors import InvalidArgumentError

# The grid of learning rates, and how many neighbouring rates are tried for a method.
_LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
_RATES = 4
# Fraction of all steps in which LoCA searches for locations (the paper's B_s): 10 to 20% are best
# according to the paper.
_ALTERNATING = 0.2


@dataclass(frozen=True)
class Method:
    """A fine-tuning method."""

    name: str
    title: str  # in figures and tables
    kind: str  # its implementation, for example a PEFT configuration
    # Lowest of the learning rates that it is tuned over, by group of tasks.
    lowest: Mapping[str, float] = field(default_factory=dict)
    fraction: float = 1.0  # LoCA components per trained number of the budget
    # Kind ``loca``: fields of its configuration that make this variant. Kind ``default``: PEFT's
    # tuner, and the fields that differ from its defaults.
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""  # why the method is not run; empty if it is

    @property
    def has_budget(self) -> bool:
        """Whether a rank determines the number of trained parameters."""
        return self.kind not in ("head", "full", "biases", "default", "not-run")

    @property
    def changes_body(self) -> bool:
        """Whether it trains parameters of the pretrained model itself."""
        return self.kind in ("full", "biases")

    def rates(self, group: str, beyond: int = 0) -> tuple[float, ...]:
        """The learning rates tried on a group of tasks, and ``beyond`` more on either side."""
        if group not in self.lowest:
            raise InvalidArgumentError(
                f"{self.title} cannot be run on the tasks of the group {group}; choose another "
                "method or task"
            )
        start = _LADDER.index(self.lowest[group])
        return _LADDER[max(start - beyond, 0) : start + _RATES + beyond]


@dataclass(frozen=True)
class Budget:
    """The parameter budget and the length of a training run."""

    r: int  # the rank of LoRA that defines the budget
    steps: int  # all training steps, which schedules depend on


@cache
def methods() -> dict[str, Method]:
    """All methods by name, in the order of the tables."""
    text = (Path(__file__).parent / "methods.toml").read_text(encoding="utf-8")
    return {name: Method(name, **entry) for name, entry in tomllib.loads(text).items()}


def find_method(name: str) -> Method:
    """The method with a name, unless it is not run."""
    method = find("method", name, methods())
    if method.kind == "not-run":
        raise InvalidArgumentError(f"the method {method.title} is not run: {method.reason}")
    return method


def target_shape(model: nn.Module, targets: Sequence[str]) -> tuple[int, int]:
    """Number of outputs p and inputs q of the target layers, or of the smallest of them."""
    shapes = {
        tuple(module.weight.shape)
        for name, module in model.named_modules()
        if f".{name}".endswith(tuple(f".{target}" for target in targets))
        and isinstance(module.weight, torch.Tensor)
    }
    if not shapes:
        raise InvalidArgumentError(
            f"targets must be layers of the model, but {', '.join(targets)} are not found"
        )
    p, q = min(shapes, key=math.prod)
    return int(p), int(q)


def check_runnable(
    method: Method, budget: Budget, shape: tuple[int, int], loca_defaults: Mapping[str, Any]
) -> None:
    """Check that a method can be run with a budget and settings, before anything is run."""
    if not method.has_budget:
        return
    settings = {**loca_defaults, **method.options}
    search, steps = settings.get("location_search"), alternating_steps(settings, budget)
    period = settings.get("coefficient_steps", 10) + settings.get("location_steps", 20)
    if is_prune_and_regrow(str(search)) and steps is not None and 0 < steps < period:
        raise InvalidArgumentError(
            f"{method.title} prunes and regrows components every {period} steps, but its search "
            f"ends after {steps} of {budget.steps}; train longer or raise the fraction of "
            "alternating steps"
        )
    p, q = shape
    largest = min(p, q) if method.kind in ("lora", "dora", "adalora") else p * q // (p + q)
    if not 1 <= budget.r <= largest:
        raise InvalidArgumentError(
            f"{method.title} cannot express the budget of r = {budget.r} in a {p}x{q} layer; "
            f"choose 1 to {largest}"
        )
    block_side = p * q / ((p + q) * budget.r)
    if method.kind == "c3a" and math.gcd(p, q) % block_side:
        raise InvalidArgumentError(
            f"{method.title} has pq/b numbers for a block size b that divides p and q, and none "
            f"is the budget of r = {budget.r} in a {p}x{q} layer; choose another r"
        )


def alternating_steps(settings: Mapping[str, Any], budget: Budget) -> int | None:
    """Steps in which LoCA searches for locations (the paper's B_s); None if it never ends."""
    if settings.get("endless", False):
        return None
    steps = round(settings.get("alternating", _ALTERNATING) * budget.steps)
    if settings.get("joint") or is_prune_and_regrow(str(settings.get("location_search"))):
        return steps
    # LoCAConfig refuses a search that ends before it learns a location.
    return steps if steps > settings.get("coefficient_steps", 10) else 0

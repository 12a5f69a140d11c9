"""Every way of adapting a model, within the budget of a rank.

The budget of rank r is what LoRA of that rank trains in each target layer of shape p×q,
(p + q)·r numbers. FourierFT and LoCA get as many coefficients; AdaLoRA ends with a mean rank of r;
DoRA has magnitudes beside; VeRA gets the budget up to its rank of 256. What they train and keep is
counted and told.
"""

from __future__ import annotations

import importlib
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loca_theory._lookup import find
from loca_theory.adapters.location_search import is_prune_and_regrow
from loca_theory.errors import InvalidArgumentError, ResourceError

# Learning rates go up by these rungs; so many of them are tried.
_LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
_RATES = 4
# VeRA shares two random factors of this rank at most between all layers: PEFT's own default.
_VERA_RANK = 256
# AdaLoRA begins with this much more rank than it ends with; it prunes between these fractions of
# the steps.
_ADALORA_START, _ADALORA_PRUNES, _ADALORA_PRUNED = 1.5, 0.1, 0.5
# B_s as a fraction of all steps: the paper finds 10 to 20% best.
_ALTERNATING = 0.2


@dataclass(frozen=True)
class Method:
    """A way of adapting.

    Attributes:
        name: Its name.
        title: What figures and tables call it.
        kind: What it is made with.
        lowest: Lowest of the learning rates that it is tuned over, by task.
        fraction: Components a number of the budget, for LoCA.
        options: Settings of LoCA that make a variant.
        reason: Why it is not run, where it is not.
    """

    name: str
    title: str
    kind: str
    lowest: Mapping[str, float] = field(default_factory=dict)
    fraction: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def has_budget(self) -> bool:
        """Whether a rank says how much it trains."""
        return self.kind not in ("head", "full", "biases", "not-run")

    def rates(self, task: str, beyond: int = 0) -> tuple[float, ...]:
        """The learning rates it is tuned over, and more of them on either side.

        Raises:
            InvalidArgumentError: it cannot be run on the task.
        """
        if task not in self.lowest:
            msg = f"{self.title} cannot be run on {task}: there is no new head to train"
            raise InvalidArgumentError(msg)
        start = _LADDER.index(self.lowest[task])
        return _LADDER[max(start - beyond, 0) : start + _RATES + beyond]


@dataclass(frozen=True)
class Budget:
    """What a method may spend, and when.

    Attributes:
        r: The rank of LoRA that sets it.
        steps: Steps of training in all, which schedules need.
    """

    r: int
    steps: int


@cache
def methods() -> dict[str, Method]:
    """All methods by name, in the order of tables."""
    text = (Path(__file__).parent / "methods.toml").read_text(encoding="utf-8")
    return {name: Method(name, **entry) for name, entry in tomllib.loads(text).items()}


def find_method(name: str) -> Method:
    """The method of that name.

    Raises:
        InvalidArgumentError: there is none, or it is not run here, with the reason.
    """
    method = find("method", name, methods())
    if method.kind == "not-run":
        msg = f"{method.title} are not run: {method.reason}"
        raise InvalidArgumentError(msg)
    return method


def adapt(
    model: nn.Module,
    method: Method,
    budget: Budget,
    *,
    targets: Sequence[str],
    head: str | None,
    seed: int,
    overrides: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Make a model trainable in a method's way.

    Args:
        model: The pretrained model with its new head; changed in place.
        method: How.
        budget: What it may spend.
        targets: Last parts of the names of the linear layers to adapt.
        head: Name of the new head, trained whole by every method; None if there is none.
        seed: Of random locations and random factors that are never trained.
        overrides: Settings of LoCA beside those that make the variant: ``alternating`` (B_s as a
            fraction of all steps) and fields of its configuration, such as ``scaling``.

    Returns:
        The model to train, under PEFT where that makes it.

    Raises:
        InvalidArgumentError: the budget is none that the method or a layer can express.
        ResourceError: PEFT is not installed.
    """
    shape = target_shape(model, targets)
    check(method, budget, shape, overrides or {})
    if overrides and method.kind != "loca":
        msg = f"{', '.join(overrides)} are settings of LoCA and none of {method.title}"
        raise InvalidArgumentError(msg)
    if not method.has_budget:
        return _without_adapter(model, method, head)
    config = _config(method, budget, shape, seed, overrides or {})
    config.target_modules = set(targets)
    config.modules_to_save = [head] if head else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT's own, about layers that store weights transposed
        return peft().get_peft_model(model, config)


def peft() -> Any:
    """The package PEFT.

    Raises:
        ResourceError: it is not installed.
    """
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        msg = "needs PEFT: pip install 'loca-theory[adapters]'"
        raise ResourceError(msg) from error


def target_shape(model: nn.Module, targets: Sequence[str]) -> tuple[int, int]:
    """Outputs p and inputs q of the target layers, which are all alike.

    Raises:
        InvalidArgumentError: there are none, or of several shapes.
    """
    shapes = {
        (module.weight.shape[1], module.weight.shape[0])
        if type(module).__name__ == "Conv1D"
        else tuple(module.weight.shape)
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in targets and isinstance(module.weight, torch.Tensor)
    }
    if len(shapes) != 1:
        found = f"of shapes {sorted(shapes)}" if shapes else "not found"
        msg = f"target layers {', '.join(targets)} {found}; name layers of one shape"
        raise InvalidArgumentError(msg)
    (p, q) = shapes.pop()
    return int(p), int(q)


def check(
    method: Method, budget: Budget, shape: tuple[int, int], overrides: Mapping[str, Any]
) -> None:
    """Make sure that a method can be run so, before anything is.

    Args:
        method: Which.
        budget: What it may spend.
        shape: Of the target layers.
        overrides: Settings of LoCA.

    Raises:
        InvalidArgumentError: the budget is none that the method can express, or components would
            be exchanged after the search for locations is over.
    """
    if not method.has_budget:
        return
    settings = {**overrides, **method.options}
    search, steps = settings.get("location_search"), _alternating_steps(settings, budget)
    period = settings.get("coefficient_steps", 10) + settings.get("location_steps", 20)
    if is_prune_and_regrow(str(search)) and steps is not None and 0 < steps < period:
        msg = f"{method.title} moves components every {period} steps, and its search ends after "
        msg += f"{steps} of {budget.steps}; train longer or alternate for a larger share"
        raise InvalidArgumentError(msg)
    p, q = shape
    most = min(p, q) if method.kind in ("lora", "dora", "adalora") else p * q // (p + q)
    if not 1 <= budget.r <= most:
        msg = f"{method.title} cannot express the budget of r = {budget.r} in a {p}x{q} layer; "
        msg += f"choose 1 to {most}"
        raise InvalidArgumentError(msg)


def _config(
    method: Method, budget: Budget, shape: tuple[int, int], seed: int, overrides: Mapping[str, Any]
) -> Any:
    (p, q), r, package = shape, budget.r, peft()
    numbers = (p + q) * r
    if method.kind == "lora" or method.kind == "dora":
        return package.LoraConfig(r=r, lora_alpha=r, use_dora=method.kind == "dora")
    if method.kind == "adalora":
        start, end = (round(s * budget.steps) for s in (_ADALORA_PRUNES, _ADALORA_PRUNED))
        init = max(r + 1, round(_ADALORA_START * r))
        return package.AdaLoraConfig(
            init_r=min(init, p, q), target_r=r, lora_alpha=init, deltaT=1,
            tinit=start, tfinal=budget.steps - end, total_step=budget.steps + 1,
        )  # fmt: skip
    if method.kind == "vera":
        rank = min(max(numbers - p, 1), _VERA_RANK)
        return package.VeraConfig(r=rank, projection_prng_key=seed)
    if method.kind == "fourierft":
        # A coefficient of 1 is then an increment of norm 1, as in LoCA, and ΔW = 0 at first as
        # for all others. PEFT's defaults are neither.
        scaling = (2 * p * q) ** 0.5
        return package.FourierFTConfig(
            n_frequency=numbers, scaling=scaling, init_weights=True, random_loc_seed=seed
        )
    return _loca_config(method, budget, max(int(method.fraction * numbers), 1), seed, overrides)


def _loca_config(
    method: Method, budget: Budget, components: int, seed: int, overrides: Mapping[str, Any]
) -> Any:
    from loca_theory.adapters import LoCAConfig

    settings: dict[str, Any] = {**overrides, **method.options}
    steps = _alternating_steps(settings, budget)
    for name in ("alternating", "endless"):
        settings.pop(name, None)
    return LoCAConfig(
        n_frequency=components, alternating_steps=steps, random_loc_seed=seed, **settings
    )


def _alternating_steps(settings: Mapping[str, Any], budget: Budget) -> int | None:
    if settings.get("endless", False):
        return None
    return round(settings.get("alternating", _ALTERNATING) * budget.steps)


def _without_adapter(model: nn.Module, method: Method, head: str | None) -> nn.Module:
    if method.kind == "head" and head is None:
        msg = f"{method.title} trains a new head, and this task has none"
        raise InvalidArgumentError(msg)
    for name, parameter in model.named_parameters():
        is_head = head is not None and head in name.split(".")
        is_bias = method.kind == "biases" and name.rsplit(".", 1)[-1] == "bias"
        parameter.requires_grad_(is_head or is_bias or method.kind == "full")
    return model

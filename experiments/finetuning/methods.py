"""All fine-tuning methods, within the budget of a rank.

The budget of rank r is the number of parameters that LoRA of this rank trains in each target layer
of shape p×q, (p + q)·r. FourierFT, WaveFT, SHiRA, C3A and LoCA get as many coefficients; AdaLoRA
ends with a mean rank of r; DoRA trains magnitudes in addition; VeRA gets the budget up to its rank
of 256. The numbers that each method trains and stores are counted and reported.
"""

from __future__ import annotations

import importlib
import math
import tomllib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loca_theory._lookup import find
from loca_theory.adapters.search.settings import is_prune_and_regrow
from loca_theory.errors import InvalidArgumentError, ResourceError

# The grid of learning rates, and how many neighbouring rates are tried for a method.
_LADDER = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
_RATES = 4
# Largest rank of the two random factors that VeRA shares between all layers: PEFT's default.
_VERA_RANK = 256
# AdaLoRA starts with this multiple of its final rank, and prunes between these two fractions of the
# steps.
_ADALORA_START, _ADALORA_PRUNES, _ADALORA_PRUNED = 1.5, 0.1, 0.5
# B_s as a fraction of all steps: 10 to 20% are best according to the paper.
_ALTERNATING = 0.2


@dataclass(frozen=True)
class Method:
    """A fine-tuning method.

    Attributes:
        name: Name of the method.
        title: Name in figures and tables.
        kind: Which implementation it uses, for example a PEFT configuration or none.
        lowest: Lowest of the learning rates that it is tuned over, by group of tasks.
        fraction: Components of LoCA per number of the budget.
        options: Settings of LoCA that define a variant.
        reason: Why the method is not run; empty if it is.
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
        """Whether a rank determines the number of trained parameters."""
        return self.kind not in ("head", "full", "biases", "not-run")

    @property
    def changes_body(self) -> bool:
        """Whether it trains parameters of the pretrained model itself."""
        return self.kind in ("full", "biases")

    def rates(self, tasks: str, beyond: int = 0) -> tuple[float, ...]:
        """The learning rates that are tried.

        Args:
            tasks: Name of a group of tasks: ``small`` or ``text``.
            beyond: Number of further rates of the grid on either side.

        Raises:
            InvalidArgumentError: the method cannot be run on these tasks.
        """
        if tasks not in self.lowest:
            msg = f"{self.title} cannot be run on the tasks of the group {tasks}; choose another "
            msg += "method or task"
            raise InvalidArgumentError(msg)
        start = _LADDER.index(self.lowest[tasks])
        return _LADDER[max(start - beyond, 0) : start + _RATES + beyond]


def rates_beyond(tried: Iterable[float], best: float) -> tuple[float, ...]:
    """The rate of the grid beyond those tried, if the lowest or highest of them is the best."""
    at = sorted(_LADDER.index(rate) for rate in tried)
    ends = {at[0]: at[0] - 1, at[-1]: at[-1] + 1}
    beyond = ends.get(_LADDER.index(best), -1)
    return _LADDER[beyond : beyond + 1] if beyond >= 0 else ()


@dataclass(frozen=True)
class Budget:
    """The parameter budget and the length of a training run.

    Attributes:
        r: The rank of LoRA that defines the budget.
        steps: Total number of training steps, which schedules depend on.
    """

    r: int
    steps: int


@cache
def methods() -> dict[str, Method]:
    """All methods by name, in the order of the tables."""
    text = (Path(__file__).parent / "methods.toml").read_text(encoding="utf-8")
    return {name: Method(name, **entry) for name, entry in tomllib.loads(text).items()}


def find_method(name: str) -> Method:
    """The method with a name.

    Raises:
        InvalidArgumentError: there is no such method, or it is not run; the message says why.
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
    """Prepare a model for training with a method.

    Args:
        model: The pretrained model with its new head; changed in place.
        method: The method.
        budget: Its budget.
        targets: Last parts of the names of the linear layers to adapt.
        head: Name of the new head, which every method trains in full; None if there is none.
        seed: Seed of random locations and of random factors that are never trained.
        overrides: Settings of LoCA besides those that define the variant: ``alternating`` (B_s as
            a fraction of all steps) and fields of its configuration, such as ``scaling``.

    Returns:
        The model to train, wrapped by PEFT if the method comes from there.

    Raises:
        InvalidArgumentError: the method or a layer cannot express the budget.
        ResourceError: PEFT is not installed.
    """
    shape = target_shape(model, targets)
    check(method, budget, shape, overrides or {})
    if overrides and method.kind != "loca":
        msg = f"overrides must be empty for {method.title}: {', '.join(overrides)} are settings "
        msg += "of LoCA"
        raise InvalidArgumentError(msg)
    if not method.has_budget:
        return _without_adapter(model, method, head)
    config = _config(method, budget, shape, seed, overrides or {})
    config.target_modules = set(targets)
    config.modules_to_save = [head] if head else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about layers that store weights transposed
        return peft().get_peft_model(model, config)


def peft() -> Any:
    """Import PEFT.

    Raises:
        ResourceError: PEFT is not installed.
    """
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        msg = "PEFT is not installed: pip install 'loca-theory[adapters]'"
        raise ResourceError(msg) from error


def target_shape(model: nn.Module, targets: Sequence[str]) -> tuple[int, int]:
    """Number of outputs p and inputs q of the target layers, which have one shape.

    Raises:
        InvalidArgumentError: no layer is found, or the layers have several shapes.
    """
    shapes = {
        (module.weight.shape[1], module.weight.shape[0])
        if type(module).__name__ == "Conv1D"
        else tuple(module.weight.shape)
        for name, module in model.named_modules()
        if name.rsplit(".", 1)[-1] in targets and isinstance(module.weight, torch.Tensor)
    }
    if len(shapes) != 1:
        found = f"are of shapes {sorted(shapes)}" if shapes else "are not found"
        msg = f"targets must be layers of one shape, but {', '.join(targets)} {found}"
        raise InvalidArgumentError(msg)
    (p, q) = shapes.pop()
    return int(p), int(q)


def check(
    method: Method, budget: Budget, shape: tuple[int, int], overrides: Mapping[str, Any]
) -> None:
    """Check that a method can be run with a budget and settings, before anything is run.

    Args:
        method: The method.
        budget: Its budget.
        shape: Shape of the target layers.
        overrides: Settings of LoCA.

    Raises:
        InvalidArgumentError: the method cannot express the budget, or the location search would end
            before it prunes and regrows components for the first time.
    """
    if not method.has_budget:
        return
    settings = {**overrides, **method.options}
    search, steps = settings.get("location_search"), _alternating_steps(settings, budget)
    period = settings.get("coefficient_steps", 10) + settings.get("location_steps", 20)
    if is_prune_and_regrow(str(search)) and steps is not None and 0 < steps < period:
        msg = f"{method.title} prunes and regrows components every {period} steps, but its search "
        msg += f"ends after {steps} of {budget.steps}; train longer or raise the fraction of "
        msg += "alternating steps"
        raise InvalidArgumentError(msg)
    p, q = shape
    most = min(p, q) if method.kind in ("lora", "dora", "adalora") else p * q // (p + q)
    if not 1 <= budget.r <= most:
        msg = f"{method.title} cannot express the budget of r = {budget.r} in a {p}x{q} layer; "
        msg += f"choose 1 to {most}"
        raise InvalidArgumentError(msg)
    if method.kind == "c3a" and math.gcd(p, q) % (p * q / ((p + q) * budget.r)):
        msg = f"{method.title} has pq/b numbers for a block size b that divides p and q, and none "
        msg += f"is the budget of r = {budget.r} in a {p}x{q} layer; choose another r"
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
    if method.kind == "waveft":
        # With this scaling a coefficient of 1 makes an increment of norm 1, as in LoCA.
        return package.WaveFTConfig(
            n_frequency=numbers, scaling=1.0, init_weights=True, random_loc_seed=seed
        )
    if method.kind == "shira":
        return package.ShiraConfig(r=r, random_seed=seed)
    if method.kind == "c3a":
        # init_weights makes ΔW = 0 at first, as for all other methods; PEFT's default does not.
        return package.C3AConfig(block_size=p * q // numbers, init_weights=True)
    if method.kind == "fourierft":
        # With this scaling a coefficient of 1 makes an increment of norm 1, as in LoCA, and
        # init_weights makes ΔW = 0 at first, as for all other methods. PEFT's defaults do neither.
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
    steps = round(settings.get("alternating", _ALTERNATING) * budget.steps)
    if settings.get("joint") or is_prune_and_regrow(str(settings.get("location_search"))):
        return steps
    # LoCAConfig refuses a search that ends before it learns a location.
    return steps if steps > settings.get("coefficient_steps", 10) else 0


def _without_adapter(model: nn.Module, method: Method, head: str | None) -> nn.Module:
    if method.kind == "head" and head is None:
        msg = f"{method.title} trains a new head, and this task has none"
        raise InvalidArgumentError(msg)
    for name, parameter in model.named_parameters():
        is_head = head is not None and head in name.split(".")
        is_bias = method.kind == "biases" and name.rsplit(".", 1)[-1] == "bias"
        parameter.requires_grad_(is_head or is_bias or method.kind == "full")
    return model

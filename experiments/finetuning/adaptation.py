"""Add a method's adapter to a model; build parameter groups for the optimiser; count parameters."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from experiments.finetuning.methods import (
    Budget,
    Method,
    alternating_steps,
    check_runnable,
    target_shape,
)
from loca_theory.adapters import CosineSpectrum, LoCAConfig
from loca_theory.errors import InvalidArgumentError, ResourceError

# Largest rank of the two random factors that VeRA shares between all layers: PEFT's default.
_VERA_RANK = 256
# AdaLoRA starts with this multiple of its final rank, and prunes between these two fractions of the
# steps.
_ADALORA_START, _ADALORA_PRUNES, _ADALORA_PRUNED = 1.5, 0.1, 0.5

# Seeds of random locations and factors in configurations of PEFT.
_SEEDS = ("random_loc_seed", "random_seed", "projection_prng_key")


def require_peft() -> Any:
    """PEFT, or an error that says how to install it."""
    try:
        return importlib.import_module("peft")
    except ImportError as error:
        raise ResourceError("PEFT is not installed: pip install 'loca-theory[adapters]'") from error


def adapt(
    model: nn.Module,
    method: Method,
    budget: Budget,
    *,
    targets: Sequence[str],
    head: str | None,
    seed: int,  # of random locations, and of random factors that are never trained
    # Settings of LoCA where the method fixes none: ``alternating``, a fraction of the steps, and
    # fields of LoCAConfig.
    loca_defaults: Mapping[str, Any] | None = None,
) -> nn.Module:
    """Add the adapter, if the method has one, and choose what is trained; return the model.

    The given model is modified too.
    """
    shape, loca_defaults = target_shape(model, targets), loca_defaults or {}
    check_runnable(method, budget, shape, loca_defaults)
    if method.kind == "default":
        return with_adapter(model, default_config(method, seed), targets, head)
    if not method.has_budget:
        if method.kind == "head" and head is None:
            raise InvalidArgumentError(f"{method.title} trains a new head, and this task has none")
        for name, parameter in model.named_parameters():
            is_bias = method.kind == "biases" and name.rsplit(".", 1)[-1] == "bias"
            parameter.requires_grad_(_is_head(name, head) or is_bias or method.kind == "full")
        return model
    config = _config(method, budget, shape, seed, loca_defaults)
    return with_adapter(model, config, targets, head)


def with_adapter(model: nn.Module, config: Any, targets: Sequence[str], head: str | None) -> Any:
    """Adapt the layers of these names as a configuration of PEFT says; the head is trained too."""
    config.target_modules = set(targets)
    config.modules_to_save = [head] if head else None
    with warnings.catch_warnings():
        # PEFT warns of layers that store weights transposed and of names that transformers has
        # replaced; all its warnings are silenced.
        warnings.simplefilter("ignore")
        return require_peft().get_peft_model(model, config)


def default_config(method: Method, seed: int) -> Any:
    """A method's PEFT configuration: PEFT's defaults, except for the method's options."""
    types = importlib.import_module("peft.mapping").PEFT_TYPE_TO_CONFIG_MAPPING
    settings = dict(method.options)
    config: Any = types[settings.pop("tuner")](**settings)
    for name in _SEEDS:
        if hasattr(config, name):
            setattr(config, name, seed)
    return config


def _config(
    method: Method,
    budget: Budget,
    shape: tuple[int, int],
    seed: int,
    loca_defaults: Mapping[str, Any],
) -> Any:
    (p, q), r, package = shape, budget.r, require_peft()
    numbers = (p + q) * r
    # init_weights makes ΔW = 0 at first, as for all methods; PEFT's defaults do not.
    match method.kind:
        case "lora" | "dora":
            return package.LoraConfig(r=r, lora_alpha=r, use_dora=method.kind == "dora")
        case "adalora":
            start, end = (round(s * budget.steps) for s in (_ADALORA_PRUNES, _ADALORA_PRUNED))
            init = max(r + 1, round(_ADALORA_START * r))
            ranks = {"init_r": min(init, p, q), "target_r": r, "lora_alpha": init}
            pruning = {"tinit": start, "tfinal": budget.steps - end, "deltaT": 1}
            return package.AdaLoraConfig(**ranks, **pruning, total_step=budget.steps + 1)
        case "vera":
            rank = min(max(numbers - p, 1), _VERA_RANK)
            return package.VeraConfig(r=rank, projection_prng_key=seed)
        case "shira":
            return package.ShiraConfig(r=r, random_seed=seed)
        case "c3a":
            return package.C3AConfig(block_size=p * q // numbers, init_weights=True)
        case "waveft" | "fourierft":
            # With these scalings a coefficient of 1 makes an increment of norm 1, as in LoCA.
            is_waves = method.kind == "waveft"
            kind = package.WaveFTConfig if is_waves else package.FourierFTConfig
            scaling = 1.0 if is_waves else (2 * p * q) ** 0.5
            return kind(
                n_frequency=numbers, scaling=scaling, init_weights=True, random_loc_seed=seed
            )
    settings: dict[str, Any] = {**loca_defaults, **method.options}
    steps = alternating_steps(settings, budget)
    for name in ("alternating", "endless"):
        settings.pop(name, None)
    components = max(int(method.fraction * numbers), 1)
    return LoCAConfig(
        n_frequency=components, alternating_steps=steps, random_loc_seed=seed, **settings
    )


def parameter_groups(
    model: nn.Module, *, head: str | None, rate: float, head_rate: float, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser: those of the method and of the head, decayed or not.

    Matrices and coefficients are decayed.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    coefficients = {id(p) for s in spectra for p in s.parameters()}
    parts: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            is_decayed = p.ndim > 1 or id(p) in coefficients or "fourierft_spectrum" in name
            key = (_is_head(name, head), weight_decay if is_decayed else 0.0)
            parts.setdefault(key, []).append(p)
    return [
        {"params": parts[key], "lr": head_rate if key[0] else rate, "weight_decay": key[1]}
        for key in sorted(parts)
    ]


def count(model: nn.Module, head: str | None, *, pruned_to: int | None = None) -> dict[str, int]:
    """Count the trained parameters without the head, those of the head, and the stored numbers."""
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    learned = sum(s.coefficients.numel() for s in spectra if s.is_searching)
    counts = {"trained": 0, "head": 0}
    for name, p in model.named_parameters():
        if p.requires_grad:
            counts["head" if _is_head(name, head) else "trained"] += p.numel()
    stored = counts["trained"] + learned
    if pruned_to is not None:
        # AdaLoRA's factors p×r and r×q, and r singular values.
        layers: list[Any] = [m for m in model.modules() if hasattr(m, "lora_E")]
        stored = sum(int(m.in_features) + int(m.out_features) + 1 for m in layers) * pruned_to
    return {**counts, "stored": stored}


def _is_head(name: str, head: str | None) -> bool:
    return head is not None and head in name.split(".")

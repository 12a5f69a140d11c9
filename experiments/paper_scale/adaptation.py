"""Adapt a model with the paper's settings, and make the optimiser's parameter groups."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch import nn

from experiments.finetuning.methods import Budget, Method, adapt, check, peft
from experiments.paper_scale.settings import Settings
from loca_theory.adapters import CosineSpectrum
from loca_theory.errors import InvalidArgumentError


def adapt_as_stated(
    model: nn.Module, method: Method, settings: Settings, *, head: str | None, seed: int, steps: int
) -> nn.Module:
    """Prepare a model for training, with the paper's settings or within the budget of a rank."""
    budget = settings.r or (settings.rank if method.kind == "adalora" else None)
    plain = method.kind in ("lora", "dora")
    if not method.has_budget or (budget is not None and not plain):
        return adapt(
            model, method, Budget(budget or 1, steps), targets=settings.targets, head=head,
            seed=seed, overrides=_loca(settings, steps) if method.kind == "loca" else None,
        )  # fmt: skip
    config = _config(method, settings, seed)
    config.modules_to_save = [head] if head else None
    # A regular expression, because a name may contain dots ("to_out.0").
    config.target_modules = rf"(.*\.)?({'|'.join(map(re.escape, settings.targets))})"
    _check_fits(method, config, steps, _shapes(model, config.target_modules))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about names that transformers has replaced
        return peft().get_peft_model(model, config)


def optimizer_groups(
    model: nn.Module, settings: Settings, head: str | None
) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser: those of the method, and the head.

    Weight decay does not apply to vectors other than coefficients.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    coefficients = {id(p) for s in spectra for p in s.parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            is_head = head is not None and head in name.split(".")
            is_decayed = p.ndim > 1 or id(p) in coefficients or "fourierft_spectrum" in name
            rate = settings.head_rate if is_head else settings.rate
            decay = settings.weight_decay if is_decayed else 0.0
            groups.setdefault((rate, decay), []).append(p)
    return [
        {"params": params, "lr": rate, "weight_decay": decay}
        for (rate, decay), params in groups.items()
    ]


class SplitProjection(nn.Module):
    """GPT-2's fused projection split into three layers, which can be adapted separately."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        weights = fused.get_parameter("weight").detach().t().chunk(3)
        biases = fused.get_parameter("bias").detach().chunk(3)
        for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
            layer.weight = nn.Parameter(weight.clone())
            layer.bias = nn.Parameter(bias.clone())
            setattr(self, name, layer)

    def forward(self, states: Any) -> Any:
        """Return queries, keys and values side by side."""
        return torch.cat([layer(states) for layer in self.children()], dim=-1)


def split_projections(model: nn.Module) -> nn.Module:
    """Replace every fused projection of GPT-2; other models stay as they are."""
    for module in list(model.modules()):
        fused = getattr(module, "c_attn", None)
        if isinstance(fused, nn.Module) and not isinstance(fused, SplitProjection):
            module.c_attn = SplitProjection(fused)
    return model


def _shapes(model: nn.Module, pattern: str) -> set[tuple[int, int]]:
    """Numbers of outputs and inputs of the layers whose names match a pattern."""
    return {
        (int(module.weight.shape[0]), int(module.weight.shape[1]))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and re.fullmatch(pattern, name)
    }


def _check_fits(method: Method, config: Any, steps: int, shapes: set[tuple[int, int]]) -> None:
    """Check that the layers can express the rank (if they have one shape) or the components."""
    if method.kind in ("lora", "dora"):
        if len(shapes) == 1:
            check(method, Budget(config.r, steps), next(iter(shapes)), {})
        return
    p, q = min(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))
    if shapes and config.n_frequency > p * q:
        msg = f"{method.title} cannot have {config.n_frequency} components in a {p}x{q} layer; "
        msg += f"choose 1 to {p * q} (--components)"
        raise InvalidArgumentError(msg)


def _config(method: Method, settings: Settings, seed: int) -> Any:
    if method.kind in ("lora", "dora"):
        rank = settings.r or settings.rank
        # A rank given by the user gets scaling 1 (alpha = rank), as in experiments.finetuning.
        scaling = rank if settings.r else settings.scaling
        return peft().LoraConfig(r=rank, lora_alpha=scaling, use_dora=method.kind == "dora")
    components = max(round(method.fraction * (settings.components or 1)), 1)
    if method.kind == "fourierft":
        # PEFT initialises the coefficients at random, as in the paper of FourierFT.
        scaling = {} if settings.scaling is None else {"scaling": settings.scaling}
        return peft().FourierFTConfig(n_frequency=components, random_loc_seed=seed, **scaling)
    from loca_theory.adapters import LoCAConfig

    options = {**_loca(settings, 1), **method.options}
    steps = None if options.pop("endless", False) else settings.alternating_steps
    steps = 0 if options.pop("alternating", None) == 0.0 else steps  # V1 learns no locations
    return LoCAConfig(
        n_frequency=components, alternating_steps=steps, random_loc_seed=seed, **options
    )


def _loca(settings: Settings, steps: int) -> dict[str, Any]:
    """Settings of LoCA as ``overrides`` of :func:`~experiments.finetuning.methods.adapt`."""
    stated: dict[str, Any] = {
        "coefficient_steps": settings.coefficient_steps,
        "location_steps": settings.location_steps,
        "location_lr": settings.location_rate,
    }
    if settings.scaling is not None:
        stated["scaling"] = settings.scaling
    if settings.alternating_steps is not None:
        stated["alternating"] = settings.alternating_steps / steps
    return stated

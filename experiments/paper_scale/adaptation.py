"""Adapt a model with the paper's settings, and make the optimiser's parameter groups."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch import nn

from experiments.finetuning.adaptation import adapt, peft
from experiments.finetuning.methods import Budget, Method, check
from experiments.paper_scale.settings import Settings
from loca_theory.adapters import CosineSpectrum, LoCAConfig
from loca_theory.errors import InvalidArgumentError


def adapt_as_stated(
    model: nn.Module, method: Method, settings: Settings, *, head: str | None, seed: int, steps: int
) -> nn.Module:
    """Prepare a model for training, with the paper's settings or within the budget of a rank."""
    budget = settings.r or (settings.rank if method.kind == "adalora" else None)
    is_plain = method.kind in ("lora", "dora")
    if not method.has_budget or (budget is not None and not is_plain):
        own = _loca(settings) if method.kind == "loca" else None
        if own is not None and settings.alternating_steps is not None:
            own["alternating"] = settings.alternating_steps / steps
        return adapt(
            model, method, Budget(budget or 1, steps), targets=settings.targets, head=head,
            seed=seed, overrides=own,
        )  # fmt: skip
    config = _config(method, settings, seed)
    config.modules_to_save = [head] if head else None
    # A regular expression, because a name may contain dots ("to_out.0").
    config.target_modules = rf"(.*\.)?({'|'.join(map(re.escape, settings.targets))})"
    shapes = {
        (int(layer.weight.shape[0]), int(layer.weight.shape[1]))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and re.fullmatch(config.target_modules, name)
    }
    if is_plain and len(shapes) == 1:
        check(method, Budget(config.r, steps), shapes.pop(), {})
    elif not is_plain and shapes:
        p, q = min(shapes, key=lambda shape: shape[0] * shape[1])
        if config.n_frequency > p * q:
            msg = f"{method.title} cannot have {config.n_frequency} components in a {p}x{q} layer; "
            msg += f"choose 1 to {p * q} (--components)"
            raise InvalidArgumentError(msg)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT warns about names that transformers has replaced
        return peft().get_peft_model(model, config)


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
    options = {**_loca(settings), **method.options}
    steps = None if options.pop("endless", False) else settings.alternating_steps
    steps = 0 if options.pop("alternating", None) == 0.0 else steps  # V1 learns no locations
    return LoCAConfig(
        n_frequency=components, alternating_steps=steps, random_loc_seed=seed, **options
    )


def _loca(settings: Settings) -> dict[str, Any]:
    """Fields of LoCA's configuration that the paper states."""
    scaling = {} if settings.scaling is None else {"scaling": settings.scaling}
    return {
        "coefficient_steps": settings.coefficient_steps,
        "location_steps": settings.location_steps,
        "location_lr": settings.location_rate,
        **scaling,
    }


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
            layer.weight, layer.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
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

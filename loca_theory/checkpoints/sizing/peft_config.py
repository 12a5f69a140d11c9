"""Configuration of an extracted adapter, as PEFT stores it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from loca_theory.checkpoints.pairs.linear_layers import end_others

PREFIX = "base_model.model."
"""Prefix of the names of a model's modules in PEFT."""


def parameter_prefix(weight: str, method: str) -> str:
    """Beginning of the names of an adapter's parameters for a weight.

    >>> parameter_prefix("fc.weight", "loca")
    'base_model.model.fc.loca_spectrum'
    """
    module = PREFIX + weight.removesuffix(".weight")
    return f"{module}.loca_spectrum" if method == "loca" else module


def wrapper_names(parameters: Iterable[str]) -> dict[str, str]:
    """The weight that PEFT's wrapper of each parameter is named after, in the order of the model.

    It wraps a module once for each of its parameters; the first is innermost.

    >>> wrapper_names(["mlp.experts.up", "mlp.experts.down"])["mlp.experts.up"]
    'mlp.experts.base_layer.weight'
    """
    found: dict[str, str] = {}
    inside: Counter[str] = Counter()
    for name in reversed(list(parameters)):
        owner = name.rpartition(".")[0]
        found[name] = f"{owner}{'.base_layer' * inside[owner]}.weight"
        inside[owner] += 1
    return found


def adapter_config(
    method: str,
    base: str | None,
    sizes: Mapping[str, int],
    others: Collection[str],
    *,
    parameters: Collection[str] = (),
    usual: int | None = None,
    is_transposed: bool = False,
    saved_modules: Sequence[str] = (),
) -> dict[str, Any]:
    """Configuration of an adapter of the modules with a size above 0, and of none of the others.

    ``parameters`` are those of the names that are parameters with the weights of several experts.
    ``usual`` is the size that needs no pattern, by default the most frequent one; for LoRA it is α.
    """
    adapted = {module: size for module, size in sizes.items() if size}
    usual, patterns = usual_size(adapted, usual)
    modules = [one for one in adapted if one not in parameters]
    common = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "inference_mode": True,
        "target_modules": target_modules(modules, others),
        "modules_to_save": list(saved_modules) or None,
    }
    if parameters:
        common["target_parameters"] = [one for one in adapted if one in parameters]
    if method == "loca":
        own = {"n_frequency": usual, "n_frequency_pattern": patterns, "scaling": 1.0}
        return {"peft_type": "LOCA", **common, **own, "alternating_steps": 0}
    if method == "entries":
        del common["bias"]
        return {"peft_type": "SHIRA", **common, "r": usual}
    own = {"r": usual, "lora_alpha": usual, "lora_dropout": 0.0, "use_rslora": False}
    return {"peft_type": "LORA", **common, **own, "rank_pattern": patterns}


def padded(tensors: Mapping[str, torch.Tensor], rank: int, experts: int) -> dict[str, torch.Tensor]:
    """LoRA's factors, of one or several experts, with zeros up to a rank.

    A has the rows of all experts, one expert after the other; B has the first columns of all, then
    the second ones, and so on.
    """
    rows = tensors["lora_A.weight"].unflatten(0, (experts, -1))
    columns = tensors["lora_B.weight"].unflatten(1, (-1, experts))

    def grown(factor: torch.Tensor) -> torch.Tensor:
        """A factor with zeros up to the rank along its second dimension."""
        beside = [0, 0] * (factor.ndim - 2)
        return torch.nn.functional.pad(factor, [*beside, 0, rank - factor.shape[1]])

    return {
        "lora_A.weight": grown(rows).flatten(0, 1),
        "lora_B.weight": grown(columns).flatten(1, 2),
    }


def usual_size(sizes: Mapping[str, int], usual: int | None = None) -> tuple[int, dict[str, int]]:
    """The most frequent size, and the others by the key that PEFT finds their module by."""
    usual = usual or next((size for size, _ in Counter(sizes.values()).most_common(1)), 1)
    return usual, {anchored(name): size for name, size in sizes.items() if size != usual}


def anchored(module: str) -> str:
    r"""A key of ``rank_pattern`` that fits one module only.

    PEFT takes a key to fit any name that ends with it after a dot: its rule is the expression
    ``(.*\.)?(KEY)$``. The ``^`` excludes what comes before.

    >>> anchored("block.fc")
    '^block\\.fc'
    """
    return f"^{re.escape(module)}"


def target_modules(modules: Sequence[str], others: Collection[str]) -> list[str] | str:
    """The modules as a list, or as one regular expression if the list would fit others as well.

    PEFT takes an entry of a list to fit any name that ends with it after a dot. It compares a
    regular expression with the whole name.
    """
    is_ambiguous = end_others(modules, set(others) - set(modules))
    return expression(modules) if is_ambiguous else list(modules)


def expression(modules: Sequence[str]) -> str:
    """A regular expression that fits these modules only."""
    return "|".join(re.escape(module) for module in modules)

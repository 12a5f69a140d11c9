"""Names that the weights of an adapter's layers may have in the base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loca_theory.checkpoints.adapters.layers import without_wrappers

FUSED_ATTENTION = "in_proj_weight"
"""Name of the weight of the queries, keys and values of ``MultiheadAttention``."""


def wanted_names(layers: Iterable[str], config: Mapping[str, Any]) -> Iterator[str]:
    """All names that weights of an adapter's layers may have in the base."""
    patterns = parameter_patterns(config)
    for module in map(without_wrappers, layers):
        yield f"{module}.weight"
        yield f"{module}.{FUSED_ATTENTION}"
        yield from targeted_parameters(module, patterns)


def parameter_patterns(config: Mapping[str, Any]) -> list[str]:
    """Entries of ``target_parameters`` of a configuration."""
    patterns = config.get("target_parameters")
    return [one for one in patterns if isinstance(one, str)] if isinstance(patterns, list) else []


def targeted_parameters(module: str, patterns: list[str]) -> list[str]:
    """Parameters of a module that PEFT's ``target_parameters`` name."""
    parts = [pattern.rpartition(".") for pattern in patterns]
    return [
        f"{module}.{leaf}"
        for owner, _, leaf in parts
        if not owner or module == owner or module.endswith(f".{owner}")
    ]

"""Which adapters are read, and from what: decided by an adapter's configuration alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loca_theory.checkpoints.source.checkpoint import DamagedError
from loca_theory.errors import InvalidArgumentError

LORA, LOCA = "LORA", "LOCA"

_MERGE = "merge it into its base with PEFT and analyse the merged checkpoint"
_CONVERT = "convert it with PEFT's save_pretrained(..., path_initial_model_for_weight_conversion="
_CONVERT += f'"..."), or {_MERGE}'
_CHANGES_BASE = "which changes the base in a way that the adapter does not record; " + _CONVERT
_KINDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
REFUSED = {
    name: reason.format(merge=_MERGE)
    for reason, names in _KINDS["refused"].items()
    for name in names
}
"""Types that are not read, and why."""
_REFUSED_OPTIONS = {
    name: reason.format(merge=_MERGE) for name, reason in _KINDS["refused_options"].items()
}
# With these options, LoRA's increment is not s·BA.
_NOT_PLAIN = ("kasa_config", "use_bdlora", "use_dora")
FROM_WEIGHT = ("olora", "pissa")
_FROM_DATA = ("corda", "loftq", "lora_ga", "pissa_niter_")

ADDITIVE = tuple(_KINDS["additive"])
"""Types whose ΔW does not depend on W."""
MULTIPLICATIVE = tuple(_KINDS["multiplicative"])
"""Types that transform W, or use its singular vectors."""
WITH_BIAS = tuple(_KINDS["with_bias"])
"""Types that may change the bias of a layer together with its weight."""
NOT_PASSED = frozenset(_KINDS["not_passed"])
"""Settings that name other models, files, modules or layers: none of them decides ΔW."""

KNOWN = tuple(sorted((LORA, *ADDITIVE, *MULTIPLICATIVE)))
"""All types that are read."""


def check_type(config: Mapping[str, Any], title: str) -> None:
    """Refuse an adapter that is not read."""
    name = config.get("peft_type")
    if not isinstance(name, str):
        raise DamagedError(f"the adapter_config.json in {title} has no peft_type")
    if refusal := _refusal(name, config):
        raise InvalidArgumentError(f"{title} is an adapter of type {name}{refusal}")


def by_peft(config: Mapping[str, Any]) -> bool:
    """Whether PEFT's own layers make the increments: of all types but plain LoRA and LoCA."""
    return config["peft_type"] not in (LORA, LOCA) or bool(_options(config))


def needs_weights(config: Mapping[str, Any]) -> bool:
    """Whether ΔW depends on the weights of the base."""
    return config["peft_type"] in MULTIPLICATIVE or bool(_options(config))


def without_base(config: Mapping[str, Any], title: str) -> InvalidArgumentError:
    """The error for an adapter that is given without the base that it needs."""
    how = "its increment depends on the weights of the base"
    if not needs_weights(config):
        how = "the shapes of the weights that it changes are read from the base"
    kind = " with ".join([config["peft_type"], *_options(config)[:1]])
    named = config.get("base_model_name_or_path")
    base = f"base {named}" if isinstance(named, str) and named else "base"
    return InvalidArgumentError(
        f"{title} is an adapter of type {kind}: {how}; pass the {base} as well: BASE ADAPTER"
    )


def initialisation(config: Mapping[str, Any]) -> str:
    """The initialisation of a LoRA adapter by name; empty if it has none."""
    start = config.get("init_lora_weights")
    return start.lower() if isinstance(start, str) else ""


def changes_base(config: Mapping[str, Any]) -> bool:
    """Whether PEFT changes the weights of the base when it initialises an adapter."""
    return initialisation(config).startswith((*FROM_WEIGHT, *_FROM_DATA))


def _options(config: Mapping[str, Any]) -> list[str]:
    """The options of LoRA with which its increment is not s·BA."""
    if config["peft_type"] != LORA:
        return []
    start = initialisation(config)
    from_weight = [f"init_lora_weights={start!r}"] if start in FROM_WEIGHT else []
    return [*(option for option in _NOT_PLAIN if config.get(option)), *from_weight]


def _refusal(name: str, config: Mapping[str, Any]) -> str:
    """Why an adapter is not read, after what it is; empty if it is."""
    if name in REFUSED:
        return f", {REFUSED[name]}"
    if name not in KNOWN:
        return f", which is not a known type; known are {', '.join(KNOWN)}; {_MERGE}"
    if name != LORA:
        return ""
    for option, reason in _REFUSED_OPTIONS.items():
        if config.get(option):
            return f" with {option}, {reason}"
    if (start := initialisation(config)).startswith(_FROM_DATA):
        return f" with init_lora_weights={start!r}, {_CHANGES_BASE}"
    return ""

"""What PEFT makes of the names in the file of an adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loca_theory.checkpoints.change.adapter.kinds import LORA, by_peft
from loca_theory.checkpoints.change.adapter.layers import WHOLE
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint, any_error_as
from loca_theory.checkpoints.source.memory import TensorsCheckpoint
from loca_theory.errors import InvalidArgumentError, ResourceError


def peft_package(what: str = "this") -> Any:
    """The package PEFT, to which LoCA is known, for what needs it."""
    try:
        import peft

        import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
    except ImportError as error:
        raise ResourceError(f"{what} needs PEFT: pip install 'loca-theory[adapters]'") from error
    return peft


def prefix_of(kind: str) -> str:
    """Prefix of the names of a method's tensors."""
    peft_package(f"reading a {kind} adapter")
    from peft.mapping import PEFT_TYPE_TO_PREFIX_MAPPING

    return PEFT_TYPE_TO_PREFIX_MAPPING[kind]  # pyright: ignore[reportArgumentType]


def adds_prefix(names: Iterable[str], config: Mapping[str, Any], base: Checkpoint) -> bool:
    """Whether PEFT puts ``base_model.model.`` before those names in a file that lack it.

    It does so with LoRA of models whose tensors transformers converts by the type of the model.
    """
    if config["peft_type"] != LORA or all(name.startswith(WHOLE) for name in names):
        return False
    settings = getattr(base.module, "config", None)
    kind = base.config.get("model_type", getattr(settings, "model_type", None))
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    except ImportError:
        return False
    return get_checkpoint_conversion_mapping(kind) is not None


def converted(
    config: Mapping[str, Any], source: Checkpoint, model: Model
) -> tuple[dict[str, Any], Checkpoint]:
    """A LoRA as PEFT converts it to the names and parameters of this version of a model."""
    peft = peft_package("reading an adapter of an older version of its model")
    from peft.utils.transformers_weight_conversion import (
        convert_peft_adapter_state_dict_for_transformers,
        convert_peft_config_for_transformers,
    )

    settings = {key: config[key] for key in config.keys() - {"runtime_config"}}
    failure, way_out = "PEFT cannot convert it to this version of its model", "; merge it before"
    with any_error_as(InvalidArgumentError, failure, way_out):
        changed = peft.PeftConfig.from_peft_type(**settings)
        convert_peft_config_for_transformers(changed, model.module, None)
        if changed.target_parameters and by_peft(config):
            raise InvalidArgumentError("only plain LoRA adapts parameters")
        tensors = {name: source.load(name) for name in source.entries}
        tensors = convert_peft_adapter_state_dict_for_transformers(model.module, changed, tensors)
    patterns = ("target_parameters", "target_modules", "rank_pattern", "alpha_pattern")
    settings = {**config, **{name: getattr(changed, name, None) for name in patterns}}
    settings["target_parameters"] = sorted(settings["target_parameters"] or [])
    return settings, TensorsCheckpoint(tensors, left_out=source.left_out)

"""Adapters as PEFT stores them: in a folder, or in a model in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import torch

from loca_theory.checkpoints.change.adapter.kinds import changes_base
from loca_theory.checkpoints.change.adapter.layers import PREFIX, WHOLE
from loca_theory.checkpoints.source.checkpoint import Checkpoint, any_error_as, read_json
from loca_theory.checkpoints.source.files import open_file
from loca_theory.checkpoints.source.memory import tensors_in_memory
from loca_theory.checkpoints.source.open import ADAPTER_CONFIG
from loca_theory.errors import InvalidArgumentError

FILES = ("adapter_model.safetensors", "adapter_model.bin")
"""Names of the file with an adapter's tensors."""

# What PEFT's wrappers call the module that they wrap.
_WRAPPED = ("base_layer", "original_module")


class StoredAdapter(NamedTuple):
    """An adapter of PEFT.

    Attributes:
        title: What it is, for messages.
        config: Its configuration.
        tensors: Its tensors, under the names that they have in a file.
    """

    title: str
    config: Mapping[str, Any]
    tensors: Checkpoint


def adapter_in_folder(folder: Path) -> StoredAdapter:
    """The adapter in a folder with ``adapter_config.json`` and a file of tensors."""
    config = read_json(folder / ADAPTER_CONFIG)
    path = next((file for file in map(folder.joinpath, FILES) if file.is_file()), None)
    if path is None:
        raise InvalidArgumentError(
            f"{folder} holds an {ADAPTER_CONFIG} and no {FILES[0]}; fetch it as well"
        )
    return StoredAdapter(str(folder), config, open_file(path))


def has_adapters(source: object) -> TypeGuard[torch.nn.Module]:
    """Whether a source is a model in memory that PEFT has put adapters into."""
    return isinstance(source, torch.nn.Module) and bool(getattr(source, "peft_config", None))


def adapter_in_memory(model: torch.nn.Module) -> StoredAdapter:
    """The active adapter of a model."""
    from peft import get_peft_model_state_dict
    from peft.tuners.tuners_utils import BaseTunerLayer

    configs: Any = model.peft_config
    layers = [layer for layer in model.modules() if isinstance(layer, BaseTunerLayer)]
    active = {name for layer in layers for name in layer.active_adapters if name in configs}
    names = sorted(active or configs)
    if len(names) != 1:
        raise InvalidArgumentError(
            f"the model has several active adapters ({', '.join(names)}): merge them first, and "
            "pass what model.merge_and_unload() returns"
        )
    with any_error_as(InvalidArgumentError, "PEFT cannot read the adapter of the model"):
        tensors = get_peft_model_state_dict(
            model, adapter_name=names[0], unwrap_compiled=True, save_embedding_layers=False
        )
    # Without a PeftModel around it, a model's names lack the prefix that they have in a file.
    named = {
        name if name.startswith(WHOLE) else PREFIX + name: tensor
        for name, tensor in tensors.items()
    }
    config = json.loads(json.dumps(configs[names[0]].to_dict(), default=_plain))
    return StoredAdapter("the model in memory", config, tensors_in_memory(named))


def base_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model without its adapters, under the names that it had without them."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import AuxiliaryTrainingWrapper

    configs: Any = model.peft_config
    inside: Any = getattr(model, "_orig_mod", model)
    if hasattr(inside, "get_base_model"):
        inside = inside.get_base_model()
    kinds = BaseTunerLayer, AuxiliaryTrainingWrapper
    wrappers = {name: layer for name, layer in inside.named_modules() if isinstance(layer, kinds)}
    is_merged = any(getattr(wrapper, "merged", False) for wrapper in wrappers.values())
    if is_merged or any(changes_base(config.to_dict()) for config in configs.values()):
        raise InvalidArgumentError(
            "an adapter has changed the weights of the base in memory; pass the base as it was "
            "before, such as its folder"
        )
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in inside.state_dict().items():
        parts = name.split(".")
        outside = [i for i in range(len(parts)) if ".".join(parts[:i]) in wrappers]
        if all(parts[i] in _WRAPPED for i in outside):
            weights[".".join(part for i, part in enumerate(parts) if i not in outside)] = tensor
    return weights


def _plain(value: Any) -> Any:
    """A setting that JSON has no type for: a set as a list, anything else as its text."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)

"""The class of transformers that a configuration names, built without its weights or its code."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from threading import get_ident
from typing import Any

import torch
from torch.nn.modules import module as registration

from loca_theory.errors import LocaTheoryError

_MOST_LABELS, _NUMBER = 10**5, "number of parts"
# Settings that decide neither names nor shapes, or make transformers fetch kernels.
_DROPPED = ("dtype", "torch_dtype", "quantization_config")


class UnknownModelError(LocaTheoryError):
    """No model can be built for a checkpoint, or it is another one; the message says why."""


def class_named(config: Mapping[str, Any]) -> Any:
    """The class of transformers that a configuration names."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else names
    if not isinstance(name, str):
        raise UnknownModelError("no config.json names the class of the model")
    try:
        import transformers
    except ImportError:
        raise UnknownModelError(
            "transformers is not installed: pip install 'loca-theory[adapters]'"
        ) from None
    try:
        kind: Any = getattr(transformers, name, None)
    except ImportError as error:  # what this class needs is not installed
        raise UnknownModelError(" ".join(str(error).split())) from error
    is_model = isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)
    if is_model and kind.config_class is not None:
        return kind
    why = f"transformers {transformers.__version__} has no such model"
    if "auto_map" in config:
        why = "code of its own, which is not executed"
    raise UnknownModelError(f"config.json asks for {name}: {why}")


def harmless(value: Any, most_layers: int) -> Any:
    """A configuration without what would make transformers fetch kernels or weights."""
    if isinstance(value, list):
        return [harmless(item, most_layers) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__float__"}:  # JSON has no infinity
        return float(value["__float__"])
    for name, limit in (("num_hidden_layers", most_layers), ("num_labels", _MOST_LABELS)):
        if isinstance(value.get(name), int) and value[name] > limit:
            raise _too_many(name, value[name])
    return {
        name: name != "use_pretrained_backbone" and harmless(item, most_layers)
        for name, item in value.items()
        if not name.endswith("_implementation") and name not in _DROPPED
    }


def empty_model(kind: Any, settings: Any, most_parts: int) -> torch.nn.Module:
    """A model of transformers on the meta device."""
    thread, left = get_ident(), iter(range(most_parts))

    def count(*_: Any) -> None:
        if get_ident() == thread and next(left, None) is None:
            raise _too_many(_NUMBER, most_parts + 1)

    with (
        registration.register_module_module_registration_hook(count),
        registration.register_module_parameter_registration_hook(count),
        warnings.catch_warnings(action="ignore"),
        torch.device("meta"),
    ):
        module = kind(settings)
        module.tie_weights()
    return module


def _too_many(parts: str, count: int) -> UnknownModelError:
    return UnknownModelError(
        f"config.json describes another model: {parts} {count} is too many for the stored tensors"
    )

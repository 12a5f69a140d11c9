"""The model that checkpoints belong to: its modules, their classes, and what they share.

There always is one, without memory for its weights: a class of transformers that a ``config.json``
names, a module that was passed, or a skeleton of what the tensors themselves tell. Code that comes
with a checkpoint is never executed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from loca_theory.checkpoints.model.classes import (
    UnknownModelError,
    class_named,
    empty_model,
    harmless,
)
from loca_theory.checkpoints.model.matching import plain_name
from loca_theory.checkpoints.model.skeleton import Conv1D, Shape, skeleton
from loca_theory.checkpoints.source.checkpoint import Reason, any_error_as
from loca_theory.checkpoints.source.layouts import holds_experts
from loca_theory.checkpoints.source.memory import memory_of
from loca_theory.checkpoints.source.parametrised import parametrised

EXPERTS = Reason("experts in one tensor", "PEFT adapts it as a parameter of a model that is known")
"""The obstacle of a parameter that holds the weights of several experts."""

# Layers whose attributes the model reads, by its type: a layer of PEFT in their place is passed
# over, or lacks the attribute.
_MAMBA = ("out_proj", "conv1d")
_READ_DIRECTLY: dict[str, tuple[str, ...]] = {
    "falcon_h1": _MAMBA,
    "falcon_mamba": _MAMBA,
    "mamba": _MAMBA,
    "mamba2": _MAMBA,
    "nemotron_h": _MAMBA,
    "whisper": ("encoder.conv1", "encoder.conv2"),
}


# Layers of transformers that write out what nn.Linear computes.
_AS_LINEAR = ("FalconLinear",)
# Limits on the number of modules of a model: for each stored tensor, and in addition.
_PARTS, _MORE_PARTS = 20, 1000


@dataclass(frozen=True)
class Model:
    """A model, of which the weights do not matter.

    Attributes:
        module: The model: on the meta device, or the caller's own, which is neither copied nor run.
        unknown: Why its class is not known, so that it is a skeleton; None if it is known.
        stored: Shapes of the tensors that the skeleton was made of.
    """

    module: torch.nn.Module
    unknown: str | None = None
    stored: Mapping[str, Shape] = field(default_factory=dict)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], tensors: int) -> Model:
        """The model that a ``config.json`` describes.

        Whoever wrote it must not decide how long this takes: it describes another model if that
        has many more parts than there are stored tensors.
        """
        kind = class_named(config)
        most = _PARTS * tensors + _MORE_PARTS
        failure = f"transformers cannot build {kind.__name__} from config.json"
        with any_error_as(UnknownModelError, failure):
            settings = kind.config_class.from_dict(harmless(dict(config), most))
            return cls(empty_model(kind, settings, most))

    @classmethod
    def of_tensors(
        cls, shapes: Mapping[str, Shape], unknown: str, transposed: Iterable[str] = ()
    ) -> Model:
        """The skeleton that tensors of these names and shapes tell."""
        return cls(skeleton(shapes, transposed), unknown, dict(shapes))

    @property
    def title(self) -> str:
        """Name of its class."""
        return type(self.module).__name__

    @property
    def type(self) -> str:
        """The ``model_type`` of its configuration; "" if it has none."""
        return str(getattr(getattr(self.module, "config", None), "model_type", ""))

    @property
    def is_known(self) -> bool:
        """Whether its class is known."""
        return self.unknown is None

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Shape of each of its tensors, with a parametrised weight instead of its parts."""
        if not self.is_known:
            return dict(self.stored)
        shapes = {
            plain_name(name): tuple(tensor.shape)
            for name, tensor in self.module.state_dict().items()
            if isinstance(tensor, torch.Tensor) and not is_lazy(tensor)
        }
        for name, parts in parametrised(shapes).items():
            shapes[name] = max((shapes.pop(part) for part in parts), key=math.prod)
        return shapes

    @cached_property
    def modules(self) -> dict[str, torch.nn.Module]:
        """All modules but the model itself, by all their names."""
        modules = self.module.named_modules(remove_duplicate=False)
        # A wrapper comes before what it wraps, which takes its name.
        return {plain_name(name): module for name, module in modules if plain_name(name)}

    @cached_property
    def tied(self) -> list[list[str]]:
        """The names of each parameter that has several, in the order of the model."""
        names: dict[Hashable, list[str]] = {}
        for path, parameter in self.module.named_parameters(remove_duplicate=False):
            if (name := plain_name(path)) in self.shapes:
                names.setdefault(memory_of(parameter), []).append(name)
        return [group for group in names.values() if len(group) > 1]

    @cached_property
    def ties(self) -> dict[str, list[str]]:
        """The other names of each parameter that has several."""
        return {
            name: [other for other in group if other != name]
            for group in self.tied
            for name in group
        }

    def kind(self, name: str) -> str:
        """Name of the class of the module that has a parameter."""
        return type(self.modules.get(name.rpartition(".")[0], self.module)).__name__

    def is_transposed(self, name: str) -> bool:
        """Whether a parameter is stored as (inputs, outputs), of a ``Conv1D`` or of experts."""
        module = self.modules.get(name.rpartition(".")[0])
        return _is_conv1d(module) or bool(getattr(module, "is_transposed", False))

    def obstacle(self, name: str) -> Reason | None:
        """Why PEFT cannot adapt a parameter as the weight of a layer; None if it can."""
        path, _, leaf = name.rpartition(".")
        if not path:
            return Reason("not the weight of a layer inside the model")
        module = self.modules.get(path, self.module)
        if isinstance(module, torch.nn.Embedding):
            return Reason("embedding", "not a linear layer")
        if leaf != "weight" or not (_is_plain(module) or _is_conv1d(module)):
            shape, is_named = self.shapes.get(name, ()), "xpert" in name
            if holds_experts(name, shape) if not self.is_known else len(shape) == 3 and is_named:
                return EXPERTS
            detail = f"{leaf} of {self.kind(name)}" if self.is_known else ""
            return Reason("not the weight of a linear layer", detail)
        if leaf not in dict(module.named_parameters(recurse=False)):
            return Reason("parametrised", "PEFT cannot merge an adapter into it")
        if getattr(module, "groups", 1) != 1:
            if self.is_known:
                return Reason("grouped convolution", "PEFT cannot adapt it")
            likely = "a depthwise convolution, most likely, which PEFT cannot adapt"
            return Reason("one input channel", likely)
        parent = self.modules.get(path.rpartition(".")[0], self.module)
        if isinstance(parent, torch.nn.MultiheadAttention):
            return Reason("read directly", "MultiheadAttention uses this layer without calling it")
        if path.endswith(_READ_DIRECTLY.get(self.type, ())):
            return Reason("read directly", f"{self.title} uses this layer without calling it")
        if name in self.ties:
            return Reason("shares its weight with another layer", ", ".join(self.ties[name]))
        return None

    @property
    def unchecked(self) -> str | None:
        """What of its names is not checked, and why; usually None."""
        if self.unknown is not None or find_spec("peft"):
            return self.unknown
        return "what PEFT makes of them: it is not installed (pip install 'loca-theory[adapters]')"

    @cached_property
    def taken_for_experts(self) -> frozenset[str]:
        """Linear layers of which LoRA's tensors would be given to experts by PEFT.

        PEFT converts the targets of mixture models as version 4 of transformers had them, and does
        so by the last part of a name. Without PEFT there are none, and :attr:`unchecked` says so.
        """
        if self.unchecked:
            return frozenset()
        from peft import LoraConfig
        from peft.utils.transformers_weight_conversion import convert_peft_config_for_transformers

        # One at a time, because PEFT refuses some of the targets without the others.
        taken = set()
        for name in self.modules:
            config = LoraConfig(target_modules=[name])
            with suppress(ValueError):
                convert_peft_config_for_transformers(config, self.module, None)
                if config.target_modules == {name}:
                    continue
            taken.add(name)
        return frozenset(taken)


def _is_plain(module: torch.nn.Module) -> bool:
    """Whether a module is a linear layer or a convolution, and computes what torch's own does."""
    forwards = [layer.forward for layer in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)]
    kind = type(module)
    writes_it_out = kind.__name__ in _AS_LINEAR and isinstance(module, nn.Linear)
    return writes_it_out or kind.forward in forwards


def _is_conv1d(module: torch.nn.Module | None) -> bool:
    """Whether a module is a ``Conv1D`` of transformers, or of a skeleton."""
    kind = type(module)
    return isinstance(module, Conv1D) or (kind.__module__, kind.__name__) == (
        "transformers.pytorch_utils",
        "Conv1D",
    )

"""The increments of PEFT's other adapters, by PEFT's own layers.

PEFT wraps the layers that an adapter changes once, around zeros that take no memory. An increment
is made in a copy of one of these layers, into which W and the layer's tensors are loaded.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from loca_theory.checkpoints.change.adapter.kinds import (
    FROM_WEIGHT,
    LORA,
    NOT_PASSED,
    initialisation,
)
from loca_theory.checkpoints.change.adapter.layers import PREFIX, AdaptedLayer, narrowest
from loca_theory.checkpoints.change.adapter.peft import peft_package
from loca_theory.checkpoints.source.checkpoint import Checkpoint, DamagedError, Reason, any_error_as

_SINGLE_PRECISION = ("PSOFT", "VBLORA")
# Their layers share projections, made for the most rows and the most columns of any.
_SHARING = ("PVERA", "RANDLORA", "VERA")
# PEFT decomposes W when it wraps a layer of these, or makes tensors of its size for each layer.
_ALONE = ("BOFT", "OSF", "PSOFT", "WAVEFT")
_PRUNED, _SCALING = "ADALORA", "IA3"
_FEEDFORWARD = "feedforward_modules"
_PROPORTIONAL, _SPECTRUM = "proportional_parameters", "waveft_spectrum"
# By the dimensions of their weights.
_CONVOLUTIONS: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


@dataclass
class WrappedLayers:
    """The layers that an adapter changes, as PEFT wraps them.

    Attributes:
        config: The configuration of the adapter.
        source: The file with its tensors.
        layers: The layers.
        shared: Names in the file of the tensors that layers share.
        biased: Names of the modules that have a bias.
    """

    config: Mapping[str, Any]
    source: Checkpoint
    layers: Sequence[AdaptedLayer]
    shared: Collection[str]
    biased: Collection[str]

    def __post_init__(self) -> None:
        kind = self.config["peft_type"]
        # Whether the initialisation takes s·B₀A₀, a function of W, out of W.
        mutates = kind == LORA and initialisation(self.config) in FROM_WEIGHT
        self._is_pruned = kind == _PRUNED and bool(self.config.get("rank_pattern"))
        # Whether a layer is wrapped by itself, around its W.
        self._is_alone = mutates or self._is_pruned or kind in _ALONE
        # On the meta device, sizes that only the configuration has need no memory.
        self._on_meta = not mutates and not self._is_pruned
        # PiSSA and OLoRA compute in float32 and refuse float64.
        is_single = mutates or kind in _SINGLE_PRECISION
        self._wide = torch.float32 if is_single else torch.float64

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_all"}

    def increment(self, layer: AdaptedLayer, weight: torch.Tensor | None) -> torch.Tensor:
        """ΔW of a layer, as the base stores W: the weight that PEFT merges, less W.

        W is None if ΔW does not depend on it.
        """
        from peft import set_peft_model_state_dict

        wide = self._wide
        if weight is None:
            start = torch.zeros(layer.shape, dtype=wide)
        else:
            start = weight.to(wide, copy=True)
        keys = {f"{PREFIX}{layer.module}.{part}": key for part, key in layer.keys.items()}
        keys |= {name: name for name in self.shared}
        tensors = {name: self.source.load(key) for name, key in keys.items()}
        tensors = {
            name: tensor.to(wide) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        with (
            any_error_as(DamagedError, "PEFT cannot load it"),
            warnings.catch_warnings(action="ignore"),
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
        ):
            if self._is_alone:
                model = self._wrapped([layer], start)
            else:
                model = _copied(self._all, layer.module, start)
            loaded = set_peft_model_state_dict(model, tensors, low_cpu_mem_usage=self._on_meta)
            merged = model.eval().base_model.model.get_submodule(layer.module)
            _check_agreement(merged, loaded.unexpected_keys)
            merged.merge()
            increment = merged.get_base_layer().weight.detach()
        return narrowest(increment if weight is None else increment.sub_(weight))

    @cached_property
    def _all(self) -> Any:
        return self._wrapped(self.layers)

    def _wrapped(self, layers: Sequence[AdaptedLayer], weight: torch.Tensor | None = None) -> Any:
        """A model of some layers, whose weight is zero if there is none, wrapped by PEFT."""
        from peft import get_peft_model

        skeleton, zero = nn.Module(), torch.zeros((), dtype=self._wide)
        for layer in layers:
            module = self._empty(layer)
            start = zero.expand(layer.shape) if weight is None else weight
            module.weight = nn.Parameter(start, requires_grad=False)
            if getattr(module, "bias", None) is not None:
                bias = torch.zeros(module.bias.shape, dtype=self._wide)
                module.bias = nn.Parameter(bias, requires_grad=False)
            _add(skeleton, layer.module, module)
        return get_peft_model(skeleton, self._settings(layers), low_cpu_mem_usage=self._on_meta)

    def _empty(self, layer: AdaptedLayer) -> Any:
        shape, has_bias = layer.shape, layer.module in self.biased
        with torch.device("meta"):
            if build := _CONVOLUTIONS.get(len(shape)):
                groups = self._groups(layer)
                return build(groups * shape[1], shape[0], shape[2:], bias=has_bias, groups=groups)
            if any("embedding" in part for part in layer.keys):
                return nn.Embedding(shape[0], shape[1])
            if layer.is_transposed:
                from transformers.pytorch_utils import Conv1D

                return Conv1D(shape[1], shape[0])
            return nn.Linear(shape[1], shape[0], bias=has_bias)

    def _groups(self, layer: AdaptedLayer) -> int:
        """Groups of a convolution whose channels IA³ scales: a kernel sees one group of inputs."""
        scales = layer.keys.get("ia3_l")
        channels = 0 if scales is None else self.source.entries[scales].shape[1]
        groups, odd = divmod(channels, layer.shape[1])
        return 1 if odd or not groups or layer.shape[0] % groups else groups

    def _settings(self, layers: Sequence[AdaptedLayer]) -> Any:
        config, entries = self.config, self.source.entries
        kind = config["peft_type"]
        passed = {key: config[key] for key in config.keys() - NOT_PASSED}
        # An expression: a list would have to hold all layers whose inputs IA³ scales.
        passed["target_modules"] = "|".join(re.escape(layer.module) for layer in layers)
        if kind == LORA:
            start = initialisation(config)
            passed["init_lora_weights"] = start if start in FROM_WEIGHT else True
        if kind == _PRUNED:
            passed["rank_pattern"] = self._pruned(layers[0].module) if self._is_pruned else {}
        if kind == _SCALING:
            # It scales the inputs of these layers, and the outputs of others.
            passed[_FEEDFORWARD] = passed.get(_FEEDFORWARD) or []
        if passed.get(_PROPORTIONAL):
            # WaveFT splits its total by the sizes of all layers; the file has this layer's part.
            key = layers[0].keys.get(_SPECTRUM)
            part = 1 if key is None else math.prod(entries[key].shape)
            passed |= {_PROPORTIONAL: False, "n_frequency": part, "n_frequency_pattern": {}}
        if kind in _SHARING:
            # The shared projections are made at once, with as many rows or columns as this.
            largest = max((math.prod(entry.shape) for entry in entries.values()), default=0)
            rank = passed.get("r")
            if not isinstance(rank, int) or not 0 < rank <= largest:
                raise DamagedError(
                    f"the configuration has r={rank!r}, and its tensors have at most {largest} "
                    "entries"
                )
        return peft_package().PeftConfig.from_peft_type(**passed)

    def _pruned(self, module: str) -> dict[str, Any]:
        """Which of AdaLoRA's initial ranks a layer has kept, by the name of its singular values."""
        name = f"{module}.lora_E"
        patterns, rank = self.config["rank_pattern"], self.config["init_r"]
        if not isinstance(patterns, dict) or name not in patterns:
            return {}
        if not isinstance(patterns[name], list) or len(patterns[name]) != rank:
            case = f"rank_pattern does not have init_r={rank!r} entries"
            raise DamagedError(Reason(case, f"for {name}"))
        return {name: patterns[name]}


def _copied(model: Any, name: str, weight: torch.Tensor) -> Any:
    """A copy of a wrapped model with one layer alone, which has another weight."""
    layer, alone = model.base_model.model.get_submodule(name), nn.Module()
    _add(alone, name, layer)
    outside = _replaced(model, base_model=_replaced(model.base_model, model=alone))
    return copy.deepcopy(outside, {id(layer.get_base_layer().weight): nn.Parameter(weight, False)})


def _replaced(module: nn.Module, **modules: nn.Module) -> nn.Module:
    """A module some of whose modules are replaced."""
    copied = copy.copy(module)
    copied._modules = {**module._modules, **modules}
    return copied


def _add(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Add a layer to a model under its name, inside of modules without a class."""
    *path, last = name.split(".")
    for part in path:
        if part not in model._modules:
            model.add_module(part, nn.Module())
        model = model.get_submodule(part)
    model.add_module(last, layer)


def _check_agreement(layer: Any, unexpected: Sequence[str]) -> None:
    """Refuse a file that does not hold what the configuration asks for, and nothing else."""
    if missing := [name for name, tensor in layer.named_parameters() if tensor.is_meta]:
        raise DamagedError(
            f"the file lacks {missing[0].removesuffix('.default')}, which its configuration needs"
        )
    if unexpected:
        name = unexpected[0].replace(".default", "")
        raise DamagedError(f"the file holds {name}, which its configuration does not have")

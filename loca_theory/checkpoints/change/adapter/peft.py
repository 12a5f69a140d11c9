"""The increments of PEFT's other adapters, by PEFT's own layers.

One layer at a time is built with PEFT, loaded and merged. Nothing else of the model is needed,
except by methods whose layers share projections of the largest layer's size.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from loca_theory.checkpoints.change.adapter.kinds import FROM_WEIGHT, LORA, by_peft, initialisation
from loca_theory.checkpoints.change.adapter.layers import WHOLE, AdaptedLayer
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint, DamagedError, any_error_as
from loca_theory.checkpoints.source.memory import TensorsCheckpoint
from loca_theory.errors import InvalidArgumentError, ResourceError

# All layers of these share projections, made for the most rows and the most columns of any. A layer
# of that size stands for the others: PEFT looks at the sizes alone.
_SHARING = ("PVERA", "RANDLORA", "VERA")
# Settings that name other models, files, modules or layers: none of them decides ΔW.
_NOT_PASSED = {
    "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying",
    "eva_config", "exclude_modules", "inference_mode", "layer_replication", "layers_pattern",
    "layers_to_transform", "loftq_config", "lora_ga_config", "megatron_config", "megatron_core",
    "modules_to_save", "peft_version", "revision", "runtime_config",
    "target_modules", "target_parameters", "task_type", "trainable_token_indices",
}  # fmt: skip
_SINGLE_PRECISION = ("PSOFT", "VBLORA")
_PRUNED, _SCALING = "ADALORA", "IA3"
_FEEDFORWARD = "feedforward_modules"
_PROPORTIONAL, _SPECTRUM, _SCALES = "proportional_parameters", ".waveft_spectrum", ".ia3_l"
# By the dimensions of their weights.
_CONVOLUTIONS: dict[int, Any] = {3: torch.nn.Conv1d, 4: torch.nn.Conv2d, 5: torch.nn.Conv3d}


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


def peft_increment(
    config: Mapping[str, Any],
    layer: AdaptedLayer,
    others: Iterable[AdaptedLayer],
    tensors: Mapping[str, torch.Tensor],
    weight: torch.Tensor | None,
    *,
    has_bias: bool,
) -> torch.Tensor:
    """ΔW of a layer, as the base stores W: the weight that PEFT merges, less W.

    The sizes of the adapter's other layers decide those of shared projections. W is None if ΔW does
    not depend on it.
    """
    from peft import get_peft_model, set_peft_model_state_dict

    kind = config["peft_type"]
    layers = [layer, _largest(layer, others)] if kind in _SHARING else [layer]
    # Whether the initialisation takes s·B₀A₀, a function of W, out of W.
    mutates = kind == LORA and initialisation(config) in FROM_WEIGHT
    # PiSSA and OLoRA compute in float32 and refuse float64.
    wide = torch.float32 if mutates or kind in _SINGLE_PRECISION else torch.float64
    start = torch.zeros(layer.shape, dtype=wide) if weight is None else weight.to(wide)
    del weight
    values = {
        name: one.to(wide) if one.is_floating_point() else one for name, one in tensors.items()
    }
    with (
        any_error_as(DamagedError, "PEFT cannot load it"),
        warnings.catch_warnings(action="ignore"),
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
    ):
        skeleton = torch.nn.Module()
        for one in layers:
            empty = torch.zeros((), dtype=wide).expand(one.shape)
            made = _empty_layer(one, _groups(one, tensors), has_bias=has_bias)
            _add_layer(skeleton, one.module, made, start.clone() if one is layer else empty)
        settings = _settings(config, layers, tensors)
        # On the meta device, sizes that only the configuration has need no memory.
        on_meta = not mutates and not (kind == _PRUNED and settings.rank_pattern)
        model = get_peft_model(skeleton, settings, low_cpu_mem_usage=on_meta)
        loaded = set_peft_model_state_dict(model, values, low_cpu_mem_usage=on_meta)
        merged = model.eval().base_model.model.get_submodule(layer.module)
        _check_agreement(merged, loaded.unexpected_keys)
        merged.merge()
    return _narrowest(merged.get_base_layer().weight.detach().sub_(start))


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
    what, way_out = "PEFT cannot convert it to this version of its model", "; merge it before"
    with any_error_as(InvalidArgumentError, what, way_out):
        changed = peft.PeftConfig.from_peft_type(**settings)
        convert_peft_config_for_transformers(changed, model.module, None)
        if changed.target_parameters and by_peft(config):
            raise InvalidArgumentError("only plain LoRA adapts parameters")  # noqa: EM101
        tensors = {name: source.load(name) for name in source.entries}
        tensors = convert_peft_adapter_state_dict_for_transformers(model.module, changed, tensors)
    patterns = ("target_parameters", "target_modules", "rank_pattern", "alpha_pattern")
    settings = {**config, **{name: getattr(changed, name, None) for name in patterns}}
    settings["target_parameters"] = sorted(settings["target_parameters"] or [])
    return settings, TensorsCheckpoint(tensors, left_out=source.left_out)


def peft_package(what: str = "this") -> Any:
    """The package PEFT, to which LoCA is known, for what needs it."""
    try:
        import peft

        import loca_theory.adapters  # noqa: F401  makes LoCA a method of PEFT
    except ImportError as error:
        msg = f"{what} needs PEFT: pip install 'loca-theory[adapters]'"
        raise ResourceError(msg) from error
    return peft


def _largest(layer: AdaptedLayer, others: Iterable[AdaptedLayer]) -> AdaptedLayer:
    """An empty layer with the most rows and the most columns of any."""
    matrices = [one for one in others if len(one.shape) == len(layer.shape)]
    shapes = [one.shape[::-1] if one.is_transposed else one.shape for one in matrices]
    most = tuple(max(sides) for sides in zip(*shapes, strict=True))
    return AdaptedLayer("", "the largest", {}, most)  # no module of a model is called so


def _add_layer(skeleton: torch.nn.Module, name: str, made: Any, weight: torch.Tensor) -> None:
    """Add an empty layer with this weight to a module, under its name in the model."""
    *path, last = name.split(".")
    at = skeleton
    for part in path:
        if part not in dict(at.named_children()):
            at.add_module(part, torch.nn.Module())
        at = at.get_submodule(part)
    made.weight = torch.nn.Parameter(weight, requires_grad=False)
    if getattr(made, "bias", None) is not None:
        made.bias = torch.nn.Parameter(weight.new_zeros(made.bias.shape), requires_grad=False)
    at.add_module(last, made)


def _groups(layer: AdaptedLayer, tensors: Mapping[str, torch.Tensor]) -> int:
    """Groups of a convolution whose channels IA³ scales: each kernel sees one group of inputs."""
    scales = [one.shape[1] for name, one in tensors.items() if name.endswith(_SCALES)]
    groups, odd = divmod(scales[0] if scales else 0, layer.shape[1])
    return 1 if odd or not groups or layer.shape[0] % groups else groups


def _empty_layer(layer: AdaptedLayer, groups: int, *, has_bias: bool) -> Any:
    shape = layer.shape
    with torch.device("meta"):
        if build := _CONVOLUTIONS.get(len(shape)):
            return build(groups * shape[1], shape[0], shape[2:], bias=has_bias, groups=groups)
        if any("embedding" in what for what in layer.keys):
            return torch.nn.Embedding(shape[0], shape[1])
        if layer.is_transposed:
            from transformers.pytorch_utils import Conv1D

            return Conv1D(shape[1], shape[0])
        return torch.nn.Linear(shape[1], shape[0], bias=has_bias)


def _settings(
    config: Mapping[str, Any], layers: Sequence[AdaptedLayer], tensors: Mapping[str, torch.Tensor]
) -> Any:
    kind, passed = config["peft_type"], {key: config[key] for key in config.keys() - _NOT_PASSED}
    # An expression: a list would have to hold all layers whose inputs IA³ scales.
    passed["target_modules"] = "|".join(re.escape(layer.module) for layer in layers)
    if kind == LORA:
        start = initialisation(config)
        passed["init_lora_weights"] = start if start in FROM_WEIGHT else True
    if kind == _PRUNED:
        passed["rank_pattern"] = _pruned(config, layers[0].module)
    if kind == _SCALING:
        # It scales the inputs of these layers, and the outputs of others.
        passed[_FEEDFORWARD] = passed.get(_FEEDFORWARD) or []
    if passed.get(_PROPORTIONAL):
        # WaveFT splits its total by the sizes of all layers; the file has this layer's part.
        own = next((one.numel() for name, one in tensors.items() if name.endswith(_SPECTRUM)), 0)
        passed |= {_PROPORTIONAL: False, "n_frequency": own, "n_frequency_pattern": {}}
    if kind in _SHARING:
        # The shared projections are made at once, with as many rows or columns as this.
        rank, most = passed.get("r"), max((one.numel() for one in tensors.values()), default=0)
        if not isinstance(rank, int) or not 0 < rank <= most:
            msg = f"the configuration has r={rank!r}, and its tensors have at most {most} entries"
            raise DamagedError(msg)
    return peft_package().PeftConfig.from_peft_type(**passed)


def _pruned(config: Mapping[str, Any], module: str) -> dict[str, Any]:
    """Which of AdaLoRA's initial ranks a layer has kept, by the name of its singular values."""
    name, patterns, rank = f"{module}.lora_E", config.get("rank_pattern"), config.get("init_r")
    if not isinstance(patterns, dict) or name not in patterns:
        return {}
    if not isinstance(patterns[name], list) or len(patterns[name]) != rank:
        msg = f"rank_pattern does not have init_r={rank!r} entries for {name}"
        raise DamagedError(msg)
    return {name: patterns[name]}


def _check_agreement(layer: Any, unexpected: Sequence[str]) -> None:
    """Refuse a file that does not hold what the configuration asks for, and nothing else."""
    if missing := [name for name, one in layer.named_parameters() if one.is_meta]:
        what = missing[0].removesuffix(".default")
        msg = f"the file lacks {what}, which its configuration needs"
        raise DamagedError(msg)
    if unexpected:
        what = unexpected[0].replace(".default", "")
        msg = f"the file holds {what}, which its configuration does not have"
        raise DamagedError(msg)


def _narrowest(increment: torch.Tensor) -> torch.Tensor:
    """The increment in float32 if its largest entry fits there, with full precision."""
    largest = float(increment.abs().max())
    return increment.float() if largest == 0 or 2.0**-64 < largest < 2.0**64 else increment

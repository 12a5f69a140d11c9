"""Which weights an adapter can change, and how their modules are called."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from loca_theory.checkpoints.adapters.increments import AdapterIncrements
from loca_theory.checkpoints.adapters.layers import FUSED_ATTENTION
from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.pairs.loaded_model import EXPERTS, READ_BY_ATTENTION, LoadedModel
from loca_theory.checkpoints.pairs.pair import CheckpointPair
from loca_theory.checkpoints.weights.layouts import (
    has_conv1d_name,
    holds_experts,
    stores_transposed,
)

_OUTPUT = "out_proj.weight"
_METHODS = ("lora", "loca", "entries")


@dataclass(frozen=True)
class Layer:
    """A matrix of a pair, as a layer that an adapter may change.

    Attributes:
        name: Its key in the pair's names.
        own: Name of the weight in the model with a head, which both checkpoints need not have.
        shape: (p, q) as PEFT's layer has it; of one of several experts.
        obstacles: Why it can have no adapter of a method, by ``lora``, ``loca`` and ``entries``.
        is_transposed: Whether it is stored as (inputs, outputs).
        kernel: Sides of a convolution kernel; empty for a linear layer.
        experts: Number of experts whose weights are one parameter; 1 for a layer's weight.
    """

    name: str
    own: str
    shape: tuple[int, int]
    obstacles: Mapping[str, str]
    is_transposed: bool = False
    kernel: tuple[int, ...] = ()
    experts: int = 1

    @property
    def sides(self) -> tuple[int, int]:
        """Rows of LoRA's B and columns of A, of all experts."""
        p, q = self.shape
        return self.experts * p, self.experts * q

    @property
    def stack(self) -> tuple[int, int]:
        """Shape of the weights of all experts, one below the other, as they are stored."""
        p, q = self.shape[::-1] if self.experts > 1 and self.is_transposed else self.shape
        return self.experts * p, q

    @property
    def module(self) -> str:
        """Name of the module that holds the weight."""
        return self.own.removesuffix(".weight")

    @property
    def adapters(self) -> tuple[str, ...]:
        """Methods of which it can have an adapter."""
        return tuple(one for one in _METHODS if one not in self.obstacles)


def layers_of(
    pair: CheckpointPair, model: LoadedModel | None, names: Mapping[str, str] | None = None
) -> list[Layer]:
    """Every matrix of a pair, also those with an obstacle.

    Without a model, names tell what a weight is. ``names`` are the model's names of the tensors
    that it has as they are stored; by default the pair has the names of the model, and parameters
    with the weights of several experts can be adapted.
    """
    tensors = set(pair.tuned.names)
    has_conv1d = pair.base is not None and bool(stores_transposed(pair.base))
    found = []
    for weight in pair.matrices.values():
        # The name in the model with a head; the names of a bare model lack a prefix.
        own, is_transposed = max(weight.name, weight.own, key=len), False
        if isinstance(pair.tuned, AdapterIncrements):
            own, layer = pair.tuned.own_name(weight.tuned), pair.tuned.layers.get(weight.tuned)
            is_parameter = layer is not None and layer.is_parameter
            obstacle = EXPERTS if is_parameter else _guessed_obstacle(own, weight.entry.shape)
            is_transposed = layer is not None and layer.is_transposed
        elif model is None:
            obstacle = _guessed_obstacle(own, weight.entry.shape)
            if weight.own.removesuffix(_OUTPUT) + FUSED_ATTENTION in tensors:
                obstacle = READ_BY_ATTENTION
            is_transposed = has_conv1d and has_conv1d_name(own)
        elif own := own if names is None else names.get(weight.own, ""):
            obstacle, is_transposed = model.obstacle(own), model.is_transposed(own)
        else:
            obstacle = "stored in another form than the model has it"
        experts, shape = 1, weight.entry.shape
        obstacles: dict[str, str] = {}
        if weight.note:
            obstacle = obstacle or f"not the same layer: {weight.note}"
        if model is not None and names is None and obstacle == EXPERTS:
            experts, *shape = shape
            obstacle, obstacles["entries"] = None, EXPERTS
        kernel = tuple(shape[2:])
        if obstacle is not None:
            obstacles |= dict.fromkeys(_METHODS, obstacle)
        if kernel:
            obstacles.setdefault("loca", "convolution: LoCA adapts linear layers only")
        if kernel or (is_transposed and experts == 1):
            kind = "convolution" if kernel else "Conv1D"
            obstacles.setdefault("entries", f"{kind}: SHiRA adapts nn.Linear only")
        if model is not None and own.removesuffix(".weight") in model.taken_for_experts:
            obstacles.setdefault("lora", "PEFT takes a LoRA of this name for one of experts")
        rows, columns = weight.shape
        p, q = (columns, rows // experts) if is_transposed else (rows // experts, columns)
        found.append(Layer(weight.name, own, (p, q), obstacles, is_transposed, kernel, experts))
    return found


def _guessed_obstacle(own: str, shape: tuple[int, ...]) -> str | None:
    """Why a weight of which only the name is known has no adapter."""
    if holds_experts(own, shape):
        return EXPERTS
    if not own.endswith(".weight"):
        return "not the weight of a layer"
    if kind_of(own) == "embedding" and "lm_head" not in own:
        return "embedding: not a linear layer"
    if len(shape) > 2 and shape[1] == 1:
        return "one input channel: a depthwise convolution, most likely, which PEFT cannot adapt"
    return None


def module_names(pair: CheckpointPair, model: LoadedModel | None) -> set[str]:
    """Names of all modules of the model.

    Without one: of those with tensors on either side, with and without the pair's prefix.
    """
    if model is not None:
        return set(model.modules)
    sides = (pair.base or pair.adapted, pair.tuned)
    tensors = {name for side in sides for name in side.names}
    tensors |= {pair.prefix + name for name in tensors}
    parts = [name.split(".")[:-1] for name in tensors]
    return {".".join(one[:i]) for one in parts for i in range(1, len(one) + 1)}


def end_others(modules: Collection[str], others: Collection[str]) -> bool:
    """Whether the name of a module ends the name of another module, after a dot.

    >>> end_others(["fc"], ["block.fc"])
    True
    """
    chosen = set(modules)
    split = (other.split(".") for other in others)
    return any(".".join(parts[i:]) in chosen for parts in split for i in range(1, len(parts)))

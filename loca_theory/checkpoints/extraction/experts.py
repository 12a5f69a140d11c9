"""LoRA of experts in one parameter as vLLM reads it: with keys for the projections of each expert.

vLLM has two layouts of LoRA for experts, and each class of models reads one of them
(``is_3d_moe_weight``). Models without the layout in three dimensions, such as those of DeepSeek and
Qwen3-MoE, read ``experts.0.gate_proj.lora_A.weight`` and so on, for all experts and all three
projections. Of the layout in three dimensions it takes the sides for each other that PEFT, which
wraps a parameter, has as inputs and outputs.

Source: vLLM, ``vllm/lora/layers/fused_moe.py`` and ``vllm/lora/lora_weights.py`` (``pack_moe``),
and its pull request 52194.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.lora import padded
from loca_theory.errors import InvalidArgumentError

MODEL_TYPES = ("deepseek_v2", "deepseek_v3", "qwen3_moe")
"""The types of models, in ``config.json``, whose experts vLLM reads by keys of their own."""

_PROJECTIONS = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
_A, _B = "lora_A.weight", "lora_B.weight"


def has_projections(layer: Layer) -> bool:
    """Whether a parameter with experts holds projections that vLLM has keys for."""
    return layer.weight.rpartition(".")[2] in _PROJECTIONS


def check_complete(layers: Iterable[Layer]) -> None:
    """Check that experts with an adapter have one for all their projections."""
    owners: dict[str, set[str]] = {}
    for layer in layers:
        owner, _, name = layer.weight.rpartition(".")
        owners.setdefault(owner, set()).add(name)
    if partial := [owner for owner, names in owners.items() if names != _PROJECTIONS.keys()]:
        raise InvalidArgumentError(
            f"vLLM reads LoRA of experts with all their projections only ({partial[0]} has one); "
            "adapt them all, or leave the experts out"
        )


def expert_keys(
    layer: Layer, tensors: Mapping[str, torch.Tensor], rank: int
) -> dict[str, torch.Tensor]:
    """The factors of each projection of each expert, by the module of a linear layer of its own.

    The factors of a parameter with experts have those of all experts, as PEFT stores them.
    """
    owner, _, name = layer.weight.rpartition(".")
    a = tensors[_A].unflatten(0, (layer.experts, -1))
    b = tensors[_B].unflatten(1, (-1, layer.experts)).movedim(2, 0)
    if layer.is_transposed:  # of a linear layer, B has the outputs
        a, b = b.mT, a.mT
    keys: dict[str, torch.Tensor] = {}
    for expert, factors in enumerate(zip(a, b, strict=True)):
        parts = factors[1].chunk(len(_PROJECTIONS[name]))
        for projection, part in zip(_PROJECTIONS[name], parts, strict=True):
            stored = padded({_A: factors[0].contiguous(), _B: part.contiguous()}, rank)
            keys |= {f"{owner}.{expert}.{projection}.{key}": one for key, one in stored.items()}
    return keys

"""Which software can serve an adapter, and by which scale each multiplies the factors of LoRA.

PEFT multiplies BA of a layer by α over the layer's rank; ``alpha_pattern`` and ``rank_pattern`` may
set both. llama.cpp multiplies by ``lora_alpha`` over the rank that the factors have, and does not
know the patterns. vLLM multiplies all layers by ``lora_alpha / r``. All three agree if every layer
has the rank r, and the first two if there is no ``alpha_pattern``. Only PEFT reads factors of
experts in one parameter, and of convolutions.

Source: PEFT 0.21, ``tuners/lora/model.py``; llama.cpp, ``llama_adapter_lora_weight::get_scale`` and
``convert_lora_to_gguf.py``; vLLM, ``vllm/lora/peft_helper.py``, and its pull request 52198 for
experts, which was open in August 2026.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch

from loca_theory._lookup import find
from loca_theory.checkpoints.pairs.linear_layers import Layer
from loca_theory.errors import InvalidArgumentError

ENGINES = {"peft": "PEFT", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
"""Titles of the engines."""


def for_engine(engine: str | None, method: str, *, pad: bool) -> bool:
    """Check that an engine can read adapters of a method; whether ranks are padded."""
    title = None if engine is None else find("engine", engine, ENGINES)
    if engine in (None, "peft"):
        return pad
    if method != "lora":
        msg = f"{title} serves LoRA only, and method is {method}; pass method lora"
        raise InvalidArgumentError(msg)
    return pad or engine == "vllm"


def check_saved_modules(engine: str | None, saved: Collection[str]) -> None:
    """Check that an engine can read an adapter that stores these modules whole."""
    if saved and engine not in (None, "peft"):
        msg = f"{ENGINES[engine]} reads no modules that are stored whole ({', '.join(saved)}); "
        raise InvalidArgumentError(msg + "leave them out, or serve the merged fine-tune")


def check_layers(engine: str | None, layers: Iterable[Layer]) -> None:
    """Check that an engine can read an adapter of these layers."""
    unread = [one.own for one in layers if one.experts > 1 or one.kernel]
    if unread and engine not in (None, "peft"):
        msg = f"{ENGINES[engine]} reads no LoRA of experts in one parameter or of convolutions "
        msg += f"({', '.join(unread[:3])}); leave them out with "
        raise InvalidArgumentError(msg + 'exclude="..."')


def engines_of(method: str, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Which engines read an adapter, by its configuration and tensors: a sentence for its card."""
    if method != "lora":
        return "PEFT reads it; llama.cpp and vLLM serve LoRA only."
    if config["modules_to_save"]:
        return "PEFT reads it; llama.cpp and vLLM read no modules that are stored whole."
    if config.get("target_parameters") or any(one.ndim > 2 for one in tensors.values()):
        return (
            "PEFT reads it; llama.cpp and vLLM read no LoRA of experts in one parameter or of "
            "convolutions."
        )
    if config["rank_pattern"]:
        return (
            "PEFT and llama.cpp read it. vLLM would scale every layer as if all had the same rank; "
            "for vLLM, extract an adapter with padded ranks."
        )
    return "PEFT, llama.cpp and vLLM read it, and scale it alike."

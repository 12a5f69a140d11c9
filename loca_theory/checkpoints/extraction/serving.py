"""Which software serves an extracted adapter.

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

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from loca_theory._lookup import find
from loca_theory.checkpoints.form.form import Form
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.errors import InvalidArgumentError

ENGINES = {"peft": "PEFT", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
"""Titles of the engines."""

_ONLY_PEFT = "PEFT reads it; llama.cpp and vLLM"


def check_serves(engine: str, forms: Sequence[Form], method: str) -> None:
    """Check that an engine is known, and can read adapters of these forms."""
    title = find("engine", engine, ENGINES)
    if engine != "peft" and not all(form.is_served for form in forms):
        msg = f"{title} serves LoRA only, and method is {method}; pass method lora"
        raise InvalidArgumentError(msg)


def check_readable(engine: str, saved: Collection[str], layers: Iterable[Layer]) -> None:
    """Check that an engine can read an adapter of these layers, with these modules stored whole."""
    title = ENGINES[engine]
    if engine == "peft":
        return
    if saved:
        msg = f"{title} reads no modules that are stored whole ({', '.join(saved)}); "
        raise InvalidArgumentError(msg + "leave them out, or serve the merged fine-tune")
    if unread := [layer.weight for layer in layers if layer.experts > 1 or layer.kernel]:
        msg = f"{title} reads no LoRA of experts in one parameter or of convolutions "
        msg += f"({', '.join(unread[:3])}); leave them out with "
        raise InvalidArgumentError(msg + 'exclude="..."')


def serving_engines(
    form: Form, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> str:
    """Which engines read an adapter, by its configuration and tensors: a sentence for its card."""
    if not form.is_served:
        return f"{_ONLY_PEFT} serve LoRA only."
    if config["modules_to_save"]:
        return f"{_ONLY_PEFT} read no modules that are stored whole."
    if config.get("target_parameters") or any(tensor.ndim > 2 for tensor in tensors.values()):
        return f"{_ONLY_PEFT} read no LoRA of experts in one parameter or of convolutions."
    if config["rank_pattern"]:
        text = "PEFT and llama.cpp read it. vLLM would scale every layer as if all had the same "
        return text + 'rank; for vLLM, extract it anew with serve="vllm".'
    return "PEFT, llama.cpp and vLLM read it, and scale it alike."

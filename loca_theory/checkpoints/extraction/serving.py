"""Which software serves an extracted adapter.

PEFT multiplies BA of a layer by α over the layer's rank; ``alpha_pattern`` and ``rank_pattern`` may
set both. llama.cpp multiplies by ``lora_alpha`` over the rank that the factors have, and does not
know the patterns. vLLM and SGLang multiply all layers by ``lora_alpha / r``. diffusers, which does
not read the configuration, multiplies by the rank of the first layer over that of each. All agree
if every layer has the rank r, and the first two if there is no ``alpha_pattern``. Only PEFT reads
factors of experts in one parameter, and of convolutions; vLLM reads experts by keys of their own.

Source: PEFT 0.21, ``tuners/lora/model.py``; llama.cpp, ``llama_adapter_lora_weight::get_scale`` and
``convert_lora_to_gguf.py``; vLLM, ``vllm/lora/peft_helper.py``; SGLang, ``srt/lora/lora.py``;
diffusers, ``utils/peft_utils.py`` (``get_peft_kwargs``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from loca_theory._lookup import find
from loca_theory.checkpoints.extraction.experts import MODEL_TYPES, has_projections
from loca_theory.checkpoints.form.form import Form
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.errors import InvalidArgumentError

ENGINES = {"peft": "PEFT", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
"""Titles of the engines."""

_OF_EXPERT = re.compile(r"\.experts\.\d+\.")
_ONLY_PEFT = "PEFT reads it; llama.cpp and vLLM"


def check_serves(engine: str, forms: Sequence[Form], method: str) -> None:
    """Check that an engine is known, and can read adapters of these forms."""
    title = find("engine", engine, ENGINES)
    if engine != "peft" and not all(form.is_served for form in forms):
        raise InvalidArgumentError(
            f"{title} serves LoRA only, and method is {method}; pass method lora"
        )


def check_readable(
    engine: str, saved: Collection[str], layers: Iterable[Layer], model_type: str
) -> None:
    """Check that an engine can read an adapter of these layers, with these modules stored whole."""
    title = ENGINES[engine]
    if engine == "peft":
        return
    if saved:
        raise InvalidArgumentError(
            f"{title} reads no modules that are stored whole ({', '.join(saved)}); "
            "leave them out, or serve the merged fine-tune"
        )
    has_keys = engine == "vllm" and model_type in MODEL_TYPES
    unread = [
        layer.weight
        for layer in layers
        if layer.kernel or (layer.experts > 1 and not (has_keys and has_projections(layer)))
    ]
    if unread:
        msg = f"{title} reads no LoRA of convolutions, or of experts in PEFT's one parameter "
        if engine == "vllm":
            msg += f"(it has keys for each expert in {', '.join(MODEL_TYPES)} alone) "
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
    if any(_OF_EXPERT.search(name) for name in tensors):
        return "vLLM reads it; PEFT and llama.cpp have no keys for single experts."
    if config.get("target_parameters") or any(tensor.ndim > 2 for tensor in tensors.values()):
        return f"{_ONLY_PEFT} read no LoRA of experts in one parameter or of convolutions."
    if config["rank_pattern"]:
        text = "PEFT and llama.cpp read it. vLLM and SGLang would scale every layer as if all had "
        text += "the same rank, and diffusers by that of the first; for these, extract it anew "
        return text + 'with serve="vllm".'
    return "PEFT, llama.cpp and vLLM read it, and scale it alike."

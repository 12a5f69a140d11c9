"""Configuration of an extracted adapter as PEFT stores it, and which software can serve it.

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

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from loca_theory._lookup import find
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.errors import InvalidArgumentError

ENGINES = {"peft": "PEFT", "llama.cpp": "llama.cpp", "vllm": "vLLM"}
"""Titles of the engines."""

_ONLY_PEFT = "PEFT reads it; llama.cpp and vLLM"


def wrapper_names(parameters: Sequence[str]) -> dict[str, str]:
    """The module that PEFT's wrapper of each parameter is named after, in the order of the model.

    It wraps a module once for each of its parameters; the first is innermost.

    >>> wrapper_names(["mlp.experts.up", "mlp.experts.down"])["mlp.experts.up"]
    'mlp.experts.base_layer'
    """
    found: dict[str, str] = {}
    inside: Counter[str] = Counter()
    for name in reversed(parameters):
        owner = name.rpartition(".")[0]
        found[name] = f"{owner}{'.base_layer' * inside[owner]}"
        inside[owner] += 1
    return found


def adapter_config(
    method: str, sizes: Mapping[str, int], alpha: int, **common: Any
) -> dict[str, Any]:
    """Configuration of an adapter with these sizes of its modules, and with what is common."""
    usual, patterns = usual_size(sizes, alpha if method == "lora" else None)
    common["inference_mode"] = True
    if method == "loca":
        own = {"n_frequency": usual, "n_frequency_pattern": patterns, "scaling": 1.0}
        return {"peft_type": "LOCA", **common, **own, "bias": "none", "alternating_steps": 0}
    if method == "entries":
        return {"peft_type": "SHIRA", **common, "r": usual}
    own = {"r": usual, "lora_alpha": usual, "lora_dropout": 0.0, "use_rslora": False}
    return {"peft_type": "LORA", **common, **own, "bias": "none", "rank_pattern": patterns}


def padded(tensors: Mapping[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """LoRA's factors of a linear layer with zeros up to a rank."""
    a, b = tensors["lora_A.weight"], tensors["lora_B.weight"]
    missing = rank - len(a)
    return {
        "lora_A.weight": torch.nn.functional.pad(a, (0, 0, 0, missing)),
        "lora_B.weight": torch.nn.functional.pad(b, (0, missing)),
    }


def usual_size(sizes: Mapping[str, int], usual: int | None = None) -> tuple[int, dict[str, int]]:
    """The most frequent size, and the others by the key that PEFT finds their module by."""
    usual = usual or next((size for size, _ in Counter(sizes.values()).most_common(1)), 1)
    # PEFT takes a key to fit any name that ends with it after a dot: its rule is the expression
    # (.*\.)?(KEY)$. The ^ excludes what comes before.
    return usual, {f"^{re.escape(name)}": one for name, one in sizes.items() if one != usual}


def target_modules(modules: Iterable[str], *, is_ambiguous: bool) -> list[str] | str:
    """The modules as a list, or as one regular expression if the list would fit others as well.

    PEFT takes an entry of a list to fit any name that ends with it after a dot. It compares a
    regular expression with the whole name.
    """
    return "|".join(map(re.escape, modules)) if is_ambiguous else list(modules)


def check_serves(engine: str, method: str) -> None:
    """Check that an engine is known, and can read adapters of a method."""
    title = find("engine", engine, ENGINES)
    if engine != "peft" and method != "lora":
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
    if unread := [one.own for one in layers if one.experts > 1 or one.kernel]:
        msg = f"{title} reads no LoRA of experts in one parameter or of convolutions "
        msg += f"({', '.join(unread[:3])}); leave them out with "
        raise InvalidArgumentError(msg + 'exclude="..."')


def engines_of(method: str, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Which engines read an adapter, by its configuration and tensors: a sentence for its card."""
    if method != "lora":
        return f"{_ONLY_PEFT} serve LoRA only."
    if config["modules_to_save"]:
        return f"{_ONLY_PEFT} read no modules that are stored whole."
    if config.get("target_parameters") or any(one.ndim > 2 for one in tensors.values()):
        return f"{_ONLY_PEFT} read no LoRA of experts in one parameter or of convolutions."
    if config["rank_pattern"]:
        text = "PEFT and llama.cpp read it. vLLM would scale every layer as if all had the same "
        return text + 'rank; for vLLM, extract it anew with serve="vllm".'
    return "PEFT, llama.cpp and vLLM read it, and scale it alike."

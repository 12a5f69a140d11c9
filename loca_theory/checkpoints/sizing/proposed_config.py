"""Python source of the configuration of an adapter that suits an analysis, ready to paste."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pprint import pformat
from textwrap import indent
from typing import Any

from loca_theory.checkpoints.recommendation import ADAPTERS, errors_by_rank
from loca_theory.checkpoints.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.sizing import peft_config
from loca_theory.checkpoints.summary import Totals

# LoRA's α in units of its rank.
_ALPHA = 2
_WIDTH = 88


def adapter_config(
    matrices: Sequence[Matrix], total: Totals, *, has_ambiguous_names: bool = False
) -> str:
    """Python source of a PEFT configuration for the best adapter; "" if no module can have it."""
    r, errors = next(iter(errors_by_rank(total).items()))
    best = min(ADAPTERS, key=lambda method: errors[method].error)
    modules = [one for one in matrices if one.module and (best == "R" or not one.is_convolution)]
    if not modules:
        return ""
    # LoCA and FourierFT take one number for all modules: the budget of the smallest module.
    p, q = min((one.shape for one in modules), key=sum)
    match best:
        case "R":
            module, name, sizes = "peft", "LoraConfig", {"r": r, "lora_alpha": _ALPHA * r}
        case "D":
            module, name = "loca_theory.adapters", "LoCAConfig"
            sizes = {"n_frequency": (p + q) * r // 2}
        case _:
            module, name, sizes = "peft", "FourierFTConfig", {"n_frequency": (p + q) * r}
    targets = _targets([one.module for one in modules], has_ambiguous_names=has_ambiguous_names)
    return _source(module, name, {**sizes, "target_modules": targets})


def allocated_config(
    sizes: Sequence[AllocatedMatrix],
    modules: Mapping[str, str],
    *,
    has_ambiguous_names: bool = False,
) -> str:
    """Python source of a PEFT configuration with a size for each matrix, ready to paste.

    The adapter is that of LoRA and LoCA that retains more.
    """
    retained = dict.fromkeys((one.method for one in sizes), 0.0)
    for one in sizes:
        retained[one.method] += one.energy * one.retained
    best = max(retained, key=lambda method: retained[method], default="R")
    given = {modules[one.name]: one.size for one in sizes if one.method == best and one.size}
    if not given:
        return ""
    found = peft_config.adapter_config("lora" if best == "R" else "loca", None, given, ())
    arguments = {"target_modules": _targets(list(given), has_ambiguous_names=has_ambiguous_names)}
    if best == "D":
        size = {"n_frequency": found["n_frequency"]}
        patterns = {"n_frequency_pattern": found["n_frequency_pattern"]}
        return _source("loca_theory.adapters", "LoCAConfig", {**size, **arguments, **patterns})
    ranks = found["rank_pattern"]
    alphas = {name: _ALPHA * rank for name, rank in ranks.items()}
    size = {"r": found["r"], "lora_alpha": _ALPHA * found["r"]}
    patterns = {"rank_pattern": ranks, "alpha_pattern": alphas}
    return _source("peft", "LoraConfig", {**size, **arguments, **patterns})


def _targets(modules: Sequence[str], *, has_ambiguous_names: bool) -> list[str] | str:
    return peft_config.expression(modules) if has_ambiguous_names else list(modules)


def _source(module: str, name: str, arguments: Mapping[str, Any]) -> str:
    lines = indent("\n".join(f"{key}={_value(value)}," for key, value in arguments.items()), "    ")
    return f"from {module} import {name}\n\nconfig = {name}(\n{lines}\n)"


def _value(value: Any) -> str:
    """Source of a value; a regular expression has one line per alternative."""
    if isinstance(value, str) and len(value) > _WIDTH:
        pieces = re.findall(r"[^|]*\|?", value)
        lines = "\n".join(repr(piece) for piece in pieces if piece)
        return f"(\n{indent(lines, '    ')}\n)"
    text = pformat(value, width=_WIDTH, compact=True, sort_dicts=False)
    if "\n" not in text:
        return text
    # pformat aligns the lines below the first by one space.
    return f"{text[0]}\n{indent(' ' + text[1:-1], '   ')},\n{text[-1]}"

"""Python source of the configuration of an adapter that suits an analysis, ready to paste."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pprint import pformat
from textwrap import indent
from typing import Any

from loca_theory.checkpoints.recommendation import ADAPTERS, errors_by_rank
from loca_theory.checkpoints.rows import AllocatedMatrix, Matrix
from loca_theory.checkpoints.sizing.peft_config import expression, usual_size
from loca_theory.checkpoints.summary import Totals

# For each method, what a layer must be able to have, and PEFT's configuration of it.
_CLASSES = {
    "R": ("lora", "peft", "LoraConfig"),
    "D": ("loca", "loca_theory.adapters", "LoCAConfig"),
    "FourierFT": ("loca", "peft", "FourierFTConfig"),
    "S": ("entries", "peft", "ShiraConfig"),
}
_REMARK = '# The entries are random; extract(..., "entries") stores the largest of a fine-tune.'
# LoRA's α in units of its rank.
_ALPHA = 2
_WIDTH = 88


def adapter_config(
    matrices: Sequence[Matrix], total: Totals, *, has_ambiguous_names: bool = False
) -> str:
    """Python source of a PEFT configuration for the best adapter; "" if no module can have it."""
    r, errors = next(iter(errors_by_rank(total).items()))
    fitting = {
        method: [one for one in matrices if _CLASSES[method][0] in one.adapters]
        for method in ADAPTERS
    }
    possible = [method for method in ADAPTERS if fitting[method]]
    if not possible:
        return ""
    best = min(possible, key=lambda method: errors[method].error)
    # LoCA and FourierFT take one number for all modules: the budget of the smallest module. A
    # budget that pays for the index of each entry as well buys half as many entries.
    numbers = min(sum(one.shape) for one in fitting[best]) * r
    sizes = {"R": r, "D": numbers // 2, "FourierFT": numbers, "S": max(r // 2, 1)}
    same = {one.module: sizes[best] for one in fitting[best]}
    return _source(best, same, has_ambiguous_names=has_ambiguous_names)


def allocated_config(
    sizes: Sequence[AllocatedMatrix],
    modules: Mapping[str, str],
    *,
    has_ambiguous_names: bool = False,
) -> str:
    """Python source of a PEFT configuration with a size for each matrix, ready to paste.

    The adapter is that which retains most.
    """
    retained = dict.fromkeys((one.method for one in sizes), 0.0)
    for one in sizes:
        retained[one.method] += one.energy * one.retained
    best = max(retained, key=lambda method: retained[method])
    given = {modules[one.name]: one.size for one in sizes if one.method == best and one.size}
    return _source(best, given, has_ambiguous_names=has_ambiguous_names) if given else ""


def _source(method: str, sizes: Mapping[str, int], *, has_ambiguous_names: bool) -> str:
    """Source of a configuration with a size for each module."""
    _, package, name = _CLASSES[method]
    usual, others = usual_size(sizes)
    targets = expression(list(sizes)) if has_ambiguous_names else list(sizes)
    if method == "R":
        alphas = {module: _ALPHA * rank for module, rank in others.items()}
        size = {"r": usual, "lora_alpha": _ALPHA * usual}
        patterns = {"rank_pattern": others, "alpha_pattern": alphas}
    elif method == "S":
        size, patterns = {"r": usual}, {}
    else:
        size, patterns = {"n_frequency": usual}, {"n_frequency_pattern": others}
    found = {**size, "target_modules": targets, **(patterns if others else {})}
    lines = "\n".join(f"{key}={_value(value)}," for key, value in found.items())
    remark = f"{_REMARK}\n" if method == "S" else ""
    return f"from {package} import {name}\n\n{remark}config = {name}(\n{indent(lines, '    ')}\n)"


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

"""Merge an adapter as PEFT does, in every way that rounds otherwise, and unmerge it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import peft
import torch

import loca_theory as loca
from experiments.tables import Row
from experiments.unmerged.training import Factors, encoder
from loca_theory.increments.truncated_svd import truncated_svd
from loca_theory.rounding import Format, find_format

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# Whether the adapter has the type of the model, and whether PEFT checks the merge.
RECIPES = {
    "float32 adapter": (False, False),
    "half adapter": (True, False),
    "safe_merge": (False, True),
}


def merged(
    base: Any, config: peft.PeftConfig, factors: Factors, *, is_half: bool, is_safe: bool
) -> Any:
    """The base after a merge by PEFT; the argument is changed."""
    adapted = peft.get_peft_model(base, config, autocast_adapter_dtype=not is_half)
    loaded = {
        name: tensor.to(base.dtype) if is_half and tensor.is_floating_point() else tensor
        for name, tensor in factors.items()
    }
    peft.set_peft_model_state_dict(adapted, loaded)
    return adapted.merge_and_unload(safe_merge=is_safe)


def increments(factors: Factors, scaling: float) -> dict[str, torch.Tensor]:
    """ΔW of each weight, from LoRA's factors."""
    names = [name.removesuffix(".lora_A.weight") for name in factors if "lora_A" in name]
    return {
        f"{name.removeprefix('base_model.model.')}.weight": scaling
        * (factors[f"{name}.lora_B.weight"].double() @ factors[f"{name}.lora_A.weight"].double())
        for name in names
    }


def lora_rows(config: peft.LoraConfig, factors: Factors) -> Iterator[Row]:
    """One row per type, recipe and layer: what was found, beside the truth."""
    scaling = config.lora_alpha / config.r
    changes = increments(factors, scaling)
    for dtype, kind in DTYPES.items():
        start = encoder(kind)
        weights = {name: tensor.clone() for name, tensor in start.state_dict().items()}
        for recipe, (is_half, is_safe) in RECIPES.items():
            stored = merged(encoder(kind), config, factors, is_half=is_half, is_safe=is_safe)
            after = stored.state_dict()
            result = loca.unmerge(start, stored, runner=loca.Runner(jobs=1, progress=False))
            by_name = {row.name: row for row in result.layers}
            recovered = increments(result.state_dict(), 1.0) if result.found else {}
            for name, change in changes.items():
                row = by_name.get(name)
                yield {
                    "dtype": dtype,
                    "merge": recipe,
                    "name": name,
                    **_truth(weights[name], after[name], change, config.r, find_format(dtype)),
                    "outcome": row.outcome if row else "unchanged",
                    "found_rank": row.rank if row else None,
                    "recipe": row.recipe if row else None,
                    "identical": row.identical if row else None,
                    "identical_svd": row.identical_svd if row else None,
                    "error": _error(recovered[name], change) if name in recovered else None,
                }


def _truth(
    base: torch.Tensor, tuned: torch.Tensor, change: torch.Tensor, rank: int, form: Format
) -> Row:
    """The truth about a merge, known to its maker, and the error of the truncated SVD."""
    singular = torch.linalg.svdvals(change)[:rank]
    svd = truncated_svd(tuned.float() - base.float(), rank)
    changed = int((tuned != base).count_nonzero())
    return {
        "steps": float(change.abs().median() / form.steps(base.double()).median()),
        "changed": changed / tuned.numel(),
        "unknowns": rank * sum(tuned.shape) / max(1, changed),
        "condition": float(singular[0] / singular[-1]),
        "effective_rank": float(singular.square().sum() ** 2 / singular.pow(4).sum()),
        "error_svd": _error((svd.u * svd.s) @ svd.vh, change),
    }


def _error(matrix: torch.Tensor, change: torch.Tensor) -> float:
    return float((matrix - change).square().sum() / change.square().sum())

"""Recover the adapter that was merged into a checkpoint."""

from __future__ import annotations

from typing import Literal

import torch

from loca_theory._lookup import find
from loca_theory._words import counted
from loca_theory.checkpoints.change.comparable import nothing_left
from loca_theory.checkpoints.change.opening import open_pair, stored_adapter
from loca_theory.checkpoints.change.pair import CheckpointPair, wider
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.form.forms import LORA
from loca_theory.checkpoints.form.layer import Layer, layers_of
from loca_theory.checkpoints.sizes.size import DTYPES
from loca_theory.checkpoints.source.checkpoint import Reason, Skipped
from loca_theory.checkpoints.source.open import Source, base_name, describe
from loca_theory.checkpoints.unmerging.adapters import adapters_of
from loca_theory.checkpoints.unmerging.kinds import unmerge_layers
from loca_theory.checkpoints.unmerging.result import Unmerged
from loca_theory.checkpoints.unmerging.rows import SWAPPED
from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import format_of
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import chosen_runner
from loca_theory.transforms.devices import resolve_device

_NOT_LINEAR = Reason("not a linear layer", "unmerge looks at linear layers alone")


def unmerge(
    base: Source,
    merged: Source,
    *,
    model: torch.nn.Module | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    include: str | None = None,
    exclude: str | None = None,
    max_size: int | None = None,
    device: str = "auto",
    runner: Runner | None = None,
) -> Unmerged:
    """Recover the LoRA or LoCA that was merged into a checkpoint, if one was.

    A merged checkpoint stores W + ΔW rounded to few bits. Each stored entry tells an interval in
    which the entry of ΔW was. If a matrix of low rank, or of few cosine components, lies in all of
    these, and entries that were held out confirm it, it is nearly the change that was made: merged
    again, it gives the checkpoint back to the bit almost everywhere, which a truncated
    decomposition of the difference does not. Where that cannot be told, nothing is claimed.

    Of the same weight of several layers, two at most are searched for both forms. When an adapter
    is found, it is verified in the others, which are searched for a rank if that fails.

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module.
        merged: The checkpoint with the adapter merged into it, in any of these forms.
        model: The model that both are of, if neither tells it.
        dtype: Type of the recovered factors: ``float32``, ``float16`` or ``bfloat16``.
        include: Regular expression; only matrices whose name contains a match are looked at.
        exclude: Regular expression; matrices whose name contains a match are left out.
        max_size: Matrices with more entries are left out.
        device: Where the linear algebra runs: ``auto``, ``cpu`` or ``cuda[:N]``.
        runner: How layers are computed, one after the other or on workers, and where results are
            stored, from which an interrupted run continues.

    Raises:
        InvalidArgumentError: ``merged`` is an adapter, both are swapped, as far as the layers tell,
            or no linear layer is left to look at.
        ResourceError: a file is damaged or cannot be read, or there is not enough memory.
    """
    find("dtype", dtype, DTYPES)
    if stored_adapter(merged) is not None:
        raise InvalidArgumentError(
            f"{describe(merged)} is an adapter that is not merged; pass the merged checkpoint "
            "(extract resizes adapters)"
        )
    selection = MatrixSelection(include, exclude, max_size).of_extraction()
    pair, device = open_pair(base, merged, selection, model), resolve_device(device)
    skipped, layers = list(pair.skipped), list[Layer]()
    for layer in layers_of(pair):
        obstacle = LORA.obstacle(layer)
        if obstacle is None and (layer.kernel or layer.experts > 1):
            obstacle = _NOT_LINEAR
        if obstacle is None:
            layers.append(layer)
        else:
            skipped.append(Skipped.of(layer.name, obstacle))
    if not layers:
        raise nothing_left(skipped, "linear layer is left to look at")
    task = Task({"": pair}, device, chosen_runner(runner), skipped)
    results = unmerge_layers(task, layers, dtype)
    if swapped := [row.name for _, row, _ in results if row.outcome == SWAPPED]:
        raise InvalidArgumentError(
            "what was passed as the base looks like a merge into the other checkpoint, in "
            f"{len(swapped)} of {counted(len(results), 'layer')}, the first {swapped[0]}; exchange "
            'the two, or leave such layers out with exclude="..."'
        )
    found = [result for result in results if result[1].form is not None]
    inside = {layer.weight for layer, _, _ in found}
    grid = {
        "base": describe(base),
        "merged": describe(merged),
        "include": include,
        "exclude": exclude,
        "max_size": max_size,
        "model": pair.model.title if pair.base and pair.model.is_known else None,
        "unchecked": pair.unchecked,
        "is_identical": not results and pair.is_identical(),
        "changed_outside": [
            name for name in pair.changed_outside(inside) if not _is_rounded_base(pair, name)
        ],
    }
    return Unmerged(
        manifest=manifest(grid=grid, seed=None, device=device, dtype=dtype),
        layers=tuple(row for _, row, _ in results),
        skipped=tuple(skipped),
        adapters=adapters_of(pair, found, base_name(base)),
    )


def _is_rounded_base(pair: CheckpointPair, name: str) -> bool:
    """Whether a tensor is that of the base rounded to fewer bits."""
    if pair.base is None or name not in pair.base.entries:
        return False
    before, after = wider(pair.base.load(name)), wider(pair.tuned.load(name))
    if before.shape != after.shape or not after.is_floating_point():
        return False
    if not after.isfinite().all():
        return False
    form = format_of(after)
    return form is not None and torch.equal(form.round(before.double()), after.double())

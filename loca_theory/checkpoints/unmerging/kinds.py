"""Layers of one kind: a few are searched, and what is found is verified in the others."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial

import torch

from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.form.layer import Layer
from loca_theory.checkpoints.form.text import tensors_of
from loca_theory.checkpoints.unmerging.recipes import agree_on_a_merge
from loca_theory.checkpoints.unmerging.rows import SWAPPED, UnmergedLayer
from loca_theory.checkpoints.unmerging.search import (
    LayerChange,
    UnmergeCell,
    compute_unmerged,
    guess_of,
)

Kind = tuple[str, tuple[int, int]]
"""The name of a weight without the number of its layer, and its shape."""
# So many changed layers of a kind are searched for every form before the others are for ranks only.
_SEARCHED = 2


def unmerge_layers(
    task: Task, layers: Sequence[Layer], dtype: str
) -> list[tuple[Layer, UnmergedLayer, dict[str, torch.Tensor]]]:
    """The row and the factors of each layer that changed; the others are skipped.

    Of the layers of a kind, those in the middle are searched first. When an adapter is found in
    one, the others begin with its form, size and recipe. In the end, one recipe is tried in all.
    """
    compute = partial(compute_unmerged, device=task.device)
    waiting = defaultdict[Kind, list[Layer]](list)
    for layer in layers:
        waiting[_kind(layer)].append(layer)
    for kind, members in waiting.items():
        waiting[kind] = sorted(
            members, key=lambda layer: -abs(members.index(layer) - len(members) // 2)
        )
    changes: dict[str, LayerChange] = {}
    found: dict[Kind, UnmergedLayer] = {}
    swapped = set[Kind]()
    searched = Counter[Kind]()

    def run(cells: list[UnmergeCell]) -> None:
        for cell, change in task.run(cells, compute):
            row, kind = change.row, _kind(cell.layer)
            changes[cell.name] = change
            searched[kind] += 1
            if row.form is not None:
                found.setdefault(kind, row)
            elif row.outcome == SWAPPED:
                swapped.add(kind)

    while chosen := [
        members.pop()
        for kind, members in waiting.items()
        if members and kind not in found and searched[kind] < _SEARCHED
    ]:
        run([UnmergeCell(layer.name, layer, dtype) for layer in chosen])
    cells = list[UnmergeCell]()
    for kind, members in waiting.items():
        row = found.get(kind)
        guess, form = (guess_of(row), row.form) if row else (None, None)
        cells += [
            UnmergeCell(layer.name, layer, dtype, guess, form, with_cosines=kind in swapped)
            for layer in members
        ]
    run(cells)
    if not swapped:
        agree_on_a_merge(
            layers,
            changes,
            dtype,
            lambda cells: {cell.name: change for cell, change in task.run(cells, compute)},
        )
    return [
        (layer, change.row, tensors_of(change.factors))
        for layer in layers
        if (change := changes.get(layer.name)) is not None
    ]


def _kind(layer: Layer) -> Kind:
    return re.sub(r"[0-9]+", "N", layer.weight), layer.shape

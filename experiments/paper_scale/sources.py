"""Checkpoints and data sets of each family of experiments, read from ``sources.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Size:
    """One pretrained model.

    Attributes:
        model: Name on the hub.
        printed: Name in the table of hyper-parameters; empty if the table names no model.
    """

    model: str
    printed: str = ""


@dataclass(frozen=True)
class Task:
    """One data set.

    Attributes:
        name: Name in the paper.
        data: Name on the hub.
        columns: Columns of the input; for images, possible names of the one column.
        label: Possible names of the column of labels or answers.
        evaluation: Parts that form the evaluation set; empty if all data are for training.
        config: Configuration on the hub; None if there is only one.
        revision: Branch on the hub; None for the default branch.
        classes: Number of classes; 1 for a regression, 0 if there are no labels.
    """

    name: str
    data: str
    columns: tuple[str, ...]
    label: tuple[str, ...]
    evaluation: tuple[str, ...]
    config: str | None = None
    revision: str | None = None
    classes: int = 0

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts of the data."""
        return ("train", *self.evaluation)


@dataclass(frozen=True)
class Family:
    """One kind of experiment.

    Attributes:
        name: Name of its command.
        title: Title for messages.
        table: The transcribed table of its hyper-parameters.
        sizes: Models by name.
        tasks: Data sets by name.
        layers: Names of the layers in the model, by their names in the paper.
        head: Name of the new head, which is trained in full; None if there is none.
        results: The transcribed table of its results; empty if the paper has none.
        dtype: Precision of the frozen weights.
        divide_batch: Whether the printed batch size is that after accumulation.
        several_shapes: Whether the adapted layers differ in shape.
        methods: Kinds of methods that can be run; empty for all.
        not_run: Parts of the paper's experiment that are not run, with the reasons.
        options: Settings that the paper does not state.
    """

    name: str
    title: str
    table: str
    sizes: Mapping[str, Size]
    tasks: Mapping[str, Task]
    layers: Mapping[str, tuple[str, ...]]
    head: str | None = None
    results: str = ""
    dtype: str = "float32"
    divide_batch: bool = False
    several_shapes: bool = False
    methods: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def families() -> dict[str, Family]:
    """All families by name."""
    text = (Path(__file__).parent / "sources.toml").read_text(encoding="utf-8")
    return {name: _family(name, entry) for name, entry in tomllib.loads(text).items()}


def _family(name: str, entry: dict[str, Any]) -> Family:
    return Family(
        **{
            **entry,
            "name": name,
            "sizes": {key: Size(**value) for key, value in entry["sizes"].items()},
            "tasks": {key: _task(key, value) for key, value in entry["tasks"].items()},
            "layers": {key: tuple(value) for key, value in entry["layers"].items()},
            "methods": tuple(entry.get("methods", ())),
            "not_run": tuple(entry.get("not_run", ())),
        }
    )


def _task(name: str, entry: dict[str, Any]) -> Task:
    lists = {key: tuple(entry[key]) for key in ("columns", "label", "evaluation")}
    return Task(**{**entry, **lists, "name": name})

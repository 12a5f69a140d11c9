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
        model: Where the hub has it.
        printed: What the table of hyper-parameters calls it; empty where it names no model.
    """

    model: str
    printed: str = ""


@dataclass(frozen=True)
class Task:
    """One data set.

    Attributes:
        name: What the paper calls it.
        data: Where the hub has it.
        columns: Columns of the input. Of images, the names that the one column may have.
        label: Names that the column of the answer may have.
        evaluation: Parts that are evaluated on, together; none where all is trained on.
        config: Which of several data sets of that address.
        revision: Which branch, where it is not the default one.
        classes: Number of classes; 1 for a regression, 0 where there are none.
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
        """Parts of the data that are read."""
        return ("train", *self.evaluation)


@dataclass(frozen=True)
class Family:
    """One kind of experiment.

    Attributes:
        name: Its command.
        title: What it is.
        table: The transcribed table of its hyper-parameters.
        sizes: Models by name.
        tasks: Data sets by name.
        layers: Names of the layers in the model, by what the paper calls them.
        head: Name of the new head, trained whole; None if there is none.
        results: The transcribed table of its results, empty where the paper has none.
        dtype: In what the frozen weights are held.
        divide_batch: Whether the printed batch is the one after accumulation.
        several_shapes: Whether the adapted layers differ in shape.
        methods: Methods that can be run; empty for all.
        not_run: What the paper has and this has not, with the reason.
        options: Settings that the paper does not give.
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

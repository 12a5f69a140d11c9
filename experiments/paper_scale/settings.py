"""Settings of a run: those that the paper states, or those given by the user."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from experiments.finetuning.methods import Method, find_method
from experiments.paper import load
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

_Values = Mapping[str, Any]
# Names of the methods in the tables.
_PRINTED = {"full": "FF", "linear-probing": "LP"}
# Fields that are specific to a method; all others hold for all.
_OWN = {
    "learning_rate", "learning_rate_coefficients", "learning_rate_locations",
    "frequency_components", "scaling", "rank", "alternating_steps",
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """A pretrained model: its name on the hub, and in the table, which may name none."""

    model: str
    printed: str = ""


@dataclass(frozen=True)
class Task:
    """A data set on the hub, and its columns."""

    data: str
    columns: tuple[str, ...]  # of the input; for images, possible names of the one column
    label: tuple[str, ...]  # possible names of the column of labels or answers
    evaluation: tuple[str, ...]  # parts that form the evaluation set
    config: str | None = None
    revision: str | None = None
    classes: int = 0  # 1 for a regression, 0 without labels


@dataclass(frozen=True)
class Family:
    """One kind of experiment, as ``sources.toml`` has it."""

    name: str
    title: str
    example: str  # options of an example
    table: str  # the transcribed table of its hyper-parameters
    sizes: dict[str, Size]
    tasks: dict[str, Task]
    layers: dict[str, tuple[str, ...]]  # names in the model, by those in the paper
    head: str | None = None  # the new head, which is trained in full
    results: str = ""  # the transcribed table of its results
    dtype: str = "float32"  # of the frozen weights
    divide_batch: bool = False  # whether the printed batch is that after accumulation
    several_shapes: bool = False  # whether the adapted layers differ in shape
    methods: tuple[str, ...] = ()  # kinds of methods that can be run; empty for all
    not_run: tuple[str, ...] = ()  # parts of the paper's experiment, with the reasons
    options: dict[str, Any] = field(default_factory=dict)  # what the paper does not state


@cache
def families() -> dict[str, Family]:
    """All families by name."""
    entries = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
    named = {name: {"name": name, **entry} for name, entry in entries.items()}
    return TypeAdapter(dict[str, Family]).validate_python(named)


@dataclass(frozen=True)
class Choice:
    """The user's choice of an experiment; None for what the paper states."""

    family: Family
    task: str
    model_size: str
    method: str
    seed: int = 0  # of the new head, the order of the data and random locations
    r: int | None = None  # the rank of LoRA, whose budget the other methods get
    components: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    max_steps: int | None = None
    model: str | None = None  # a folder, or another name on the hub
    data: str | None = None  # a folder
    save_every: int = 500
    out: Path = Path("loca-results") / "paper-scale"
    own: Mapping[str, Any] = field(default_factory=dict)  # the family's own options

    @property
    def source(self) -> str:
        """Where the pretrained model is."""
        return self.model or self.family.sizes[self.model_size].model


@dataclass(frozen=True)
class Settings:
    """All settings of a training run."""

    batch_size: int  # examples per forward pass
    accumulation: int  # forward passes per step
    epochs: float | None  # None if ``steps`` determines the length of training
    steps: int | None
    rate: float  # of the method's parameters
    head_rate: float
    location_rate: float
    weight_decay: float  # of all but locations, and vectors other than coefficients
    warmup: float  # number of steps, or their fraction of all if it is below 1
    label_smoothing: float
    dropout: float | None  # None for the model's default
    max_length: int | None  # largest number of tokens
    targets: tuple[str, ...]  # names of the layers that are adapted
    r: int | None  # a rank given by the user; None for the paper's settings
    rank: int | None  # the paper's
    components: int | None  # per layer
    scaling: float | None  # the paper's α
    alternating_steps: int | None  # B_s
    coefficient_steps: int  # B_a
    location_steps: int  # B_l
    notes: tuple[str, ...]  # what the paper does not state, and what is used instead


def seeds(family: Family) -> tuple[int, ...]:
    """The seeds that the paper states, or 0 if it states none."""
    found: Any = load(family.table).settings(method="LoCA").get("seeds", (0,))
    return tuple(found)


def resolve(choice: Choice) -> Settings:
    """Determine the settings of a run."""
    family, method = choice.family, find_method(choice.method)
    if family.methods and method.kind not in family.methods:
        msg = f"{family.title} is not run with {method.title}: choose from "
        raise InvalidArgumentError(msg + ", ".join(family.methods))
    if method.kind == "head" and family.head is None:
        msg = f"{method.title} trains a new head, and {family.title} has none"
        raise InvalidArgumentError(msg)
    frame, own, notes = _stated(choice, method)
    if choice.lr is not None and not (math.isfinite(choice.lr) and choice.lr > 0):
        msg = f"--lr {choice.lr:g} is not a learning rate: give a finite number above 0"
        raise InvalidArgumentError(msg)
    head = frame.get("learning_rate_head") if method.kind == "head" else None
    rate = choice.lr or own.get("learning_rate_coefficients", own.get("learning_rate", head))
    _check_complete(choice, method, own, rate)
    stated, scaling = own.get("frequency_components"), own.get("scaling")
    components = choice.components or (stated[0] if isinstance(stated, tuple) else stated)
    if isinstance(stated, tuple) and isinstance(scaling, tuple):  # that of the components
        scaling = scaling[stated.index(components) if components in stated else 0]
    if "epochs" not in frame and "total_steps" not in frame:
        frame |= load("stated").settings(task="image classification")
    batch, accumulation = frame["batch_size"], frame.get("accumulation_steps", 1)
    if family.divide_batch and choice.batch_size is None:
        batch //= accumulation
        notes.append(f"the batch of {frame['batch_size']} is read as that after accumulation")
    steps = choice.max_steps or frame.get("total_steps")
    # The learning rate of locations is the same in all tables that state one.
    loca: Any = load("e2e_hyperparameters").settings(model="GPT-2", method="LoCA")
    loca |= load("stated").settings(method="LoCA")
    return Settings(
        batch_size=choice.batch_size or batch,
        accumulation=accumulation,
        epochs=None if steps else frame["epochs"],
        steps=steps,
        rate=rate or 0.0,
        head_rate=frame.get("learning_rate_head", 0.0),
        location_rate=own.get("learning_rate_locations", loca["learning_rate_locations"]),
        weight_decay=frame["weight_decay"],
        warmup=frame.get("warmup_steps", frame.get("warmup_ratio", 0)),
        label_smoothing=frame.get("label_smoothing", 0.0),
        dropout=frame.get("dropout"),
        max_length=frame.get("max_length", family.options.get("max_length")),
        targets=tuple(name for layer in frame["targets"] for name in family.layers[layer]),
        r=choice.r,
        rank=own.get("rank"),
        components=components,
        scaling=scaling,
        alternating_steps=own.get("alternating_steps"),
        coefficient_steps=loca["coefficient_steps"],
        location_steps=loca["location_steps"],
        notes=tuple(notes),
    )


def _stated(choice: Choice, method: Method) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Settings for all methods, those specific to the method, and notes on missing ones."""
    family, table = choice.family, load(choice.family.table)
    find("task", choice.task, family.tasks)
    size = find("model size", choice.model_size, family.sizes)
    roles = {"model": size.printed} if size.printed else {}
    if choice.task in table.names("task"):
        roles["task"] = choice.task
    printed = _PRINTED.get(choice.method, "LoCA" if method.kind == "loca" else method.title)
    notes: list[str] = []
    if printed in table.names("method"):
        values: Any = table.settings(method=printed, **roles)
        own = {name: value for name, value in values.items() if name in _OWN}
    else:
        values, own = dict(table.settings(method="LoCA", **roles)), {}
        notes.append(f"{method.title} is not in the table: epochs, batch, decay are LoCA's")
    if method.kind in ("lora", "dora", "adalora") and not own and family.name == "glue":
        own = dict(load("stated").settings(method="LoRA", task="GLUE"))
    return {name: value for name, value in values.items() if name not in _OWN}, own, notes


def _check_complete(choice: Choice, method: Method, own: _Values, rate: float | None) -> None:
    """Check that the paper and the user together specify everything that a method needs."""
    counted = method.kind in ("fourierft", "loca")
    msg = ""
    if choice.components is not None and not counted:
        msg = f"{method.title} has no components: give --r instead of --components"
    elif choice.components is not None and choice.r is not None:
        msg = "--components and --r both set the number of trained parameters: give one"
    elif choice.r is not None and counted and choice.family.several_shapes:
        msg = "the layers have several shapes, so --r does not define one budget: give --components"
    if msg:
        raise InvalidArgumentError(msg)
    lacking = []
    given = choice.r is not None or choice.components is not None
    if method.has_budget and not given and not {"rank", "frequency_components"} & set(own):
        lacking.append("components (--components)" if counted else "rank (--r)")
    if rate is None:
        lacking.append("learning rate (--lr)")
    if lacking:
        msg = f"the paper does not state the {' and the '.join(lacking)} of {method.title} on "
        msg += f"{choice.task}; give {'both' if lacking[1:] else 'it'}"
        raise InvalidArgumentError(msg)

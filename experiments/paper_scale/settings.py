"""Settings of a run: those that the paper states, or those given by the user."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from experiments.finetuning.methods import Method, find_method
from loca_theory._lookup import find
from loca_theory.claims.printed import FOLDER
from loca_theory.errors import InvalidArgumentError

KINDS = ("head", "full", "biases", "lora", "dora", "fourierft", "loca")
"""Kinds of the methods that the paper's experiments compare, and that are run here."""

# Names of the methods in the tables.
_PRINTED = {"full": "FF", "linear-probing": "LP"}
_ROLES = ("model", "method", "task")
# Fields that are specific to a method; all others hold for all.
_RATES = ("learning_rate", "learning_rate_coefficients", "learning_rate_locations")
_OWN = {*_RATES, "frequency_components", "scaling", "rank", "alternating_steps"}


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
    table: str  # the transcribed table of its hyper-parameters
    sizes: dict[str, dict[str, str]]  # ``model`` on the hub, as which it is ``printed``
    tasks: dict[str, Task]
    layers: dict[str, tuple[str, ...]]  # names in the model, by those in the paper
    head: str | None = None  # the new head, which is trained in full
    results: str = ""  # the transcribed table of its results
    best_of_epochs: bool = False  # whether the best epoch is reported rather than the last
    dtype: str = "float32"  # of the frozen weights
    divide_batch: bool = False  # whether the printed batch is that after accumulation
    notes: tuple[str, ...] = ()  # what is not run, and how the paper is read
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
    r: int | None = None
    components: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    max_steps: int | None = None
    model: str | None = None  # a folder, or another name on the hub
    data: str | None = None  # a folder, or another name on the hub
    texts: int | None = None  # number of texts to write; None for all
    questions: Path | None = None  # file of questions to answer
    samples: int = 0  # number of photographs to edit
    save_every: int = 500
    out: Path = Path("loca-results") / "paper-scale"

    @property
    def source(self) -> str:
        """Where the pretrained model is."""
        return self.model or self.family.sizes[self.model_size]["model"]


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
    rank: int | None
    components: int | None  # per layer
    scaling: float | None  # the paper's α
    alternating_steps: int | None  # B_s
    coefficient_steps: int  # B_a
    location_steps: int  # B_l


@cache
def printed(table: str) -> dict[str, Any]:
    """A transcribed table of the paper."""
    return tomllib.loads((FOLDER / f"{table}.toml").read_text(encoding="utf-8"))


def stated(table: str, **roles: str) -> dict[str, Any]:
    """All values of a table for a model, method and task; the row that names more of them wins."""
    rows = [
        row
        for row in printed(table)["rows"]
        if all(row[role] == roles.get(role) for role in _ROLES if role in row)
    ]
    rows.sort(key=lambda row: sum(role in row for role in _ROLES))
    return {name: value for row in rows for name, value in row["values"].items()}


def seeds(family: Family) -> tuple[int, ...]:
    """The seeds that the paper states, or 0 if it states none."""
    return tuple(stated(family.table, method="LoCA").get("seeds", (0,)))


def resolve(choice: Choice) -> Settings:
    """Determine the settings of a run."""
    family, method = choice.family, find_method(choice.method)
    if method.kind not in KINDS or (method.kind == "head" and family.head is None):
        raise InvalidArgumentError(f"{family.title} is not run with {method.title}")
    common, of_method = _stated(choice, method)
    # A table has none, one or several of both.
    sizes, scalings = (
        value if isinstance(value := of_method.get(name, []), list) else [value]
        for name in ("frequency_components", "scaling")
    )
    components = choice.components or next(iter(sizes), None)
    # Where the paper states several, the scaling is that of the number of components.
    scaling = dict(zip(sizes, scalings, strict=False)).get(components, next(iter(scalings), None))
    head = common.get("learning_rate_head", 0.0)
    own_rate = of_method.get("learning_rate_coefficients", of_method.get("learning_rate"))
    rate: Any = choice.lr or (head if method.kind == "head" else own_rate)
    rank = choice.r or of_method.get("rank")
    _check(choice, method, {"--lr": rate, "--r": rank, "--components": components})
    if "epochs" not in common and "total_steps" not in common:
        common |= stated("stated", task="image classification")
    batch, accumulation = common["batch_size"], common.get("accumulation_steps", 1)
    steps = choice.max_steps or common.get("total_steps")
    # The learning rate of locations is the same in all tables that state one.
    loca = stated("e2e_hyperparameters", model="GPT-2", method="LoCA")
    loca |= stated("stated", method="LoCA")
    return Settings(
        batch_size=choice.batch_size or (batch // accumulation if family.divide_batch else batch),
        accumulation=accumulation,
        epochs=None if steps else common["epochs"],
        steps=steps,
        rate=rate,
        head_rate=head,
        location_rate=of_method.get("learning_rate_locations", loca["learning_rate_locations"]),
        weight_decay=common["weight_decay"],
        warmup=common.get("warmup_steps", common.get("warmup_ratio", 0)),
        label_smoothing=common.get("label_smoothing", 0.0),
        dropout=common.get("dropout"),
        max_length=common.get("max_length", family.options.get("max_length")),
        targets=tuple(name for layer in common["targets"] for name in family.layers[layer]),
        rank=rank,
        components=components,
        scaling=choice.r or scaling,  # a rank given by the user gets α = r
        alternating_steps=of_method.get("alternating_steps"),
        coefficient_steps=loca["coefficient_steps"],
        location_steps=loca["location_steps"],
    )


def _stated(choice: Choice, method: Method) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for all methods, which are LoCA's where a table lacks a method, and its own."""
    family, table = choice.family, choice.family.table
    find("task", choice.task, family.tasks)
    size = find("model size", choice.model_size, family.sizes)
    name = _PRINTED.get(choice.method, "LoCA" if method.kind == "loca" else method.title)
    is_printed = any(row.get("method") == name for row in printed(table)["rows"])
    roles = {"model": size.get("printed", ""), "task": choice.task}
    values = stated(table, method=name if is_printed else "LoCA", **roles)
    printed_values = values if is_printed else {}
    of_method = {name: value for name, value in printed_values.items() if name in _OWN}
    if method.kind in ("lora", "dora") and not of_method and family.name == "glue":
        of_method = stated("stated", method="LoRA", task="GLUE")
    return {name: value for name, value in values.items() if name not in _OWN}, of_method


def _check(choice: Choice, method: Method, stated_values: dict[str, float | None]) -> None:
    """Check that the paper and the user together specify what a method needs, and no more."""
    amount = {"lora": "--r", "dora": "--r", "fourierft": "--components", "loca": "--components"}
    needed = [amount[method.kind], "--lr"] if method.kind in amount else ["--lr"]
    for option, value in (("--r", choice.r), ("--components", choice.components)):
        if value is not None and option not in needed:
            raise InvalidArgumentError(f"{option} does not apply to {method.title}: leave it out")
    for option, value, owner in (
        ("--texts", choice.texts, "e2e"),
        ("--questions", choice.questions, "instruct"),
    ):
        if value is not None and choice.family.name != owner:
            raise InvalidArgumentError(f"{option} is an option of {owner}: leave it out")
    if choice.lr is not None and not math.isfinite(choice.lr):
        raise InvalidArgumentError(
            f"--lr {choice.lr:g} is not a learning rate: give a finite number above 0"
        )
    if lacking := [option for option in needed if stated_values[option] is None]:
        raise InvalidArgumentError(
            f"the paper does not state all settings of {method.title} on {choice.task}: give "
            + " and ".join(lacking)
        )

"""The settings of a run: the paper's, where it states them, or those of the command."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.finetuning.methods import Method, find_method
from experiments.paper import load
from experiments.paper_scale.sources import Family
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

# What the tables call the methods.
_PRINTED = {"full": "FF", "linear-probing": "LP"}
# Fields that belong to a method; all others hold for every method of the table.
_OWN = {
    "learning_rate", "learning_rate_coefficients", "learning_rate_locations",
    "frequency_components", "scaling", "rank", "alternating_steps",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """What the command asks for.

    Attributes:
        family: Which kind of experiment.
        task: Which data set.
        size: Which model.
        method: Which method.
        seed: Of the new head, the order of the data and random locations.
        r: The rank of LoRA, or whose budget the others get; None for the paper's settings.
        components: Of FourierFT and LoCA in a layer; None for the paper's.
        lr: Learning rate of what the method trains; None for the paper's.
        max_steps: Steps of training; None for the paper's.
        batch_size: None for the paper's.
    """

    family: Family
    task: str
    size: str
    method: str
    seed: int = 0
    r: int | None = None
    components: int | None = None
    lr: float | None = None
    max_steps: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Settings:
    """Everything that a run is trained with.

    Attributes:
        batch_size: Examples of one pass.
        accumulation: Passes of one step.
        epochs: Passes over the data; None where ``steps`` says when to end.
        steps: Steps of training; None where ``epochs`` does.
        rate: Learning rate of what the method trains.
        head_rate: That of the new head.
        location_rate: That of LoCA's locations.
        weight_decay: Of all but locations and vectors that are no coefficients.
        warmup: Steps, or the fraction of all if it is below 1, in which the rate rises.
        label_smoothing: As the Trainer has it.
        dropout: Of the model; None for its own.
        max_length: Tokens; None where it is not stated.
        targets: Names of the layers that are adapted.
        r: A rank whose budget the method gets, with all that follows from it.
        rank: The paper's rank.
        components: Components of a layer.
        scaling: The paper's α; None where it has none.
        alternating_steps: B_s.
        coefficient_steps: B_a.
        location_steps: B_l.
        notes: What the paper does not state, and what stands in for it.
    """

    batch_size: int
    accumulation: int
    epochs: float | None
    steps: int | None
    rate: float
    head_rate: float
    location_rate: float
    weight_decay: float
    warmup: float
    label_smoothing: float
    dropout: float | None
    max_length: int | None
    targets: tuple[str, ...]
    r: int | None
    rank: int | None
    components: int | None
    scaling: float | None
    alternating_steps: int | None
    coefficient_steps: int
    location_steps: int
    notes: tuple[str, ...] = ()

    def describe(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {**asdict(self), "targets": list(self.targets), "notes": list(self.notes)}


def seeds(family: Family) -> tuple[int, ...]:
    """The seeds that the paper names; 0 where it names none."""
    found: Any = load(family.table).settings(method="LoCA").get("seeds", (0,))
    return tuple(found)


def resolve(choice: Choice) -> Settings:
    """The settings of a run.

    Raises:
        InvalidArgumentError: the task, the model or the method is unknown, or the paper does not
            state something and neither does the command.
    """
    family, method = choice.family, find_method(choice.method)
    if family.methods and method.kind not in family.methods:
        msg = f"{family.title} is not run with {method.title}: choose from "
        raise InvalidArgumentError(msg + ", ".join(family.methods))
    if method.kind == "head" and family.head is None:
        msg = f"{method.title} trains a new head, and {family.title} has none"
        raise InvalidArgumentError(msg)
    find("task", choice.task, family.tasks)
    frame, own, notes = _stated(choice, method)
    rate = _rate(choice, method, frame, own)
    _check_complete(choice, method, own, rate)
    stated = load("stated")
    loca: dict[str, Any] = dict(stated.settings(method="LoCA"))
    components, scaling = _components(choice, own)
    if "epochs" not in frame and "total_steps" not in frame:
        frame |= stated.settings(task="image classification")
    batch, accumulation = frame["batch_size"], frame.get("accumulation_steps", 1)
    if family.divide_batch and choice.batch_size is None:
        batch //= accumulation
        notes.append(f"the batch of {frame['batch_size']} is read as that after accumulation")
    steps = choice.max_steps or frame.get("total_steps")
    return Settings(
        batch_size=choice.batch_size or batch,
        accumulation=accumulation,
        epochs=None if steps else frame["epochs"],
        steps=steps,
        rate=rate or 0.0,
        head_rate=frame.get("learning_rate_head", 0.0),
        location_rate=own.get("learning_rate_locations", _usual_location_rate()),
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
    """What holds for all methods, what is the method's own, and what is lacking."""
    family, table = choice.family, load(choice.family.table)
    size = find("model size", choice.size, family.sizes)
    roles = {"model": size.printed} if size.printed else {}
    if choice.task in table.names("task"):
        roles["task"] = choice.task
    printed = _PRINTED.get(choice.method, "LoCA" if method.kind == "loca" else method.title)
    notes = []
    if printed in table.names("method"):
        values: dict[str, Any] = table.settings(method=printed, **roles)
        own = {name: value for name, value in values.items() if name in _OWN}
    else:
        values, own = dict(table.settings(method="LoCA", **roles)), {}
        notes.append(f"{method.title} is not in the table: epochs, batch, decay are LoCA's")
    if method.kind in ("lora", "dora", "adalora") and not own and family.name == "glue":
        own = dict(load("stated").settings(method="LoRA", task="GLUE"))
    return {name: value for name, value in values.items() if name not in _OWN}, own, notes


def _check_complete(
    choice: Choice, method: Method, own: Mapping[str, Any], rate: float | None
) -> None:
    """Whether the paper and the command together state all that a method needs."""
    lacking, counted = [], method.kind in ("fourierft", "loca")
    if choice.components is not None and not counted:
        msg = f"{method.title} has no components: give --r instead of --components"
        raise InvalidArgumentError(msg)
    if choice.components is not None and choice.r is not None:
        msg = "--components and --r both say how much is trained: give one"
        raise InvalidArgumentError(msg)
    if choice.r is not None and counted and choice.family.several_shapes:
        msg = "the layers are of several shapes, so that --r is no one budget: give --components"
        raise InvalidArgumentError(msg)
    given = choice.r is not None or choice.components is not None
    if method.has_budget and not given and not {"rank", "frequency_components"} & set(own):
        lacking.append("components (--components)" if counted else "rank (--r)")
    if rate is None:
        lacking.append("learning rate (--lr)")
    if lacking:
        msg = f"the paper does not state the {' and the '.join(lacking)} of {method.title} on "
        msg += f"{choice.task}; give {'both' if lacking[1:] else 'it'}"
        raise InvalidArgumentError(msg)


def _components(choice: Choice, own: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Components of a layer, and the scaling that belongs to them."""
    stated, scaling = own.get("frequency_components"), own.get("scaling")
    wanted = choice.components
    if isinstance(stated, tuple):
        wanted = stated[0] if wanted is None else wanted
        if isinstance(scaling, tuple):
            scaling = scaling[stated.index(wanted) if wanted in stated else 0]
    elif wanted is None:
        wanted = stated
    return wanted, scaling


def _rate(
    choice: Choice, method: Method, frame: Mapping[str, Any], own: Mapping[str, Any]
) -> float | None:
    if choice.lr is not None:
        if not (math.isfinite(choice.lr) and choice.lr > 0):
            msg = f"--lr {choice.lr:g} is not a learning rate: give a finite number above 0"
            raise InvalidArgumentError(msg)
        return choice.lr
    head = frame.get("learning_rate_head") if method.kind == "head" else None
    return own.get("learning_rate_coefficients", own.get("learning_rate", head))


def _usual_location_rate() -> Any:
    """The rate that every table which states one has."""
    return load("e2e_hyperparameters").settings(model="GPT-2", method="LoCA")[
        "learning_rate_locations"
    ]

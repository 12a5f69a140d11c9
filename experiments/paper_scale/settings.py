"""Settings of a run: those that the paper states, or those given by the user."""

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

# Names of the methods in the tables.
_PRINTED = {"full": "FF", "linear-probing": "LP"}
# Fields that are specific to a method; all others hold for every method of the table.
_OWN = {
    "learning_rate", "learning_rate_coefficients", "learning_rate_locations",
    "frequency_components", "scaling", "rank", "alternating_steps",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """The user's choice of an experiment.

    Attributes:
        family: The kind of experiment.
        task: Name of the data set.
        size: Name of the model size.
        method: Name of the method.
        seed: Seed of the new head, the order of the data and random locations.
        r: The rank of LoRA, whose budget the other methods get; None for the paper's settings.
        components: Components of FourierFT and LoCA per layer; None for the paper's number.
        lr: Learning rate of the method's parameters; None for the paper's.
        max_steps: Number of training steps; None for the paper's.
        batch_size: Batch size; None for the paper's.
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
    """All settings of a training run.

    Attributes:
        batch_size: Examples per forward pass.
        accumulation: Forward passes per step.
        epochs: Passes over the data; None if ``steps`` determines the length of training.
        steps: Number of training steps; None if ``epochs`` determines the length.
        rate: Learning rate of the method's parameters.
        head_rate: Learning rate of the new head.
        location_rate: Learning rate of LoCA's locations.
        weight_decay: Weight decay of all parameters except locations and vectors other than
            coefficients.
        warmup: Number of warm-up steps, or their fraction of all steps if it is below 1.
        label_smoothing: Label smoothing of the Trainer.
        dropout: Dropout of the model; None for the model's default.
        max_length: Largest number of tokens; None if it is not stated.
        targets: Names of the layers that are adapted.
        r: A rank given by the user, whose budget the method gets; None for the paper's settings.
        rank: The paper's rank.
        components: Components per layer.
        scaling: The paper's α; None if it states none.
        alternating_steps: B_s.
        coefficient_steps: B_a.
        location_steps: B_l.
        notes: What the paper does not state, and what is used instead.
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
    """Settings for all methods, those specific to the method, and notes on missing ones."""
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
    """Check that the paper and the user together specify everything that a method needs."""
    lacking, counted = [], method.kind in ("fourierft", "loca")
    if choice.components is not None and not counted:
        msg = f"{method.title} has no components: give --r instead of --components"
        raise InvalidArgumentError(msg)
    if choice.components is not None and choice.r is not None:
        msg = "--components and --r both set the number of trained parameters: give one"
        raise InvalidArgumentError(msg)
    if choice.r is not None and counted and choice.family.several_shapes:
        msg = "the layers have several shapes, so --r does not define one budget: give --components"
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
    """Components per layer, and the scaling that belongs to them."""
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
    """The learning rate of locations, which is the same in all tables that state one."""
    return load("e2e_hyperparameters").settings(model="GPT-2", method="LoCA")[
        "learning_rate_locations"
    ]

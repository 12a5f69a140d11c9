"""The model and the data of a run, from the hub or from local folders.

Loaded files cannot run code: remote code is off, weights are safetensors, and ``datasets`` runs no
scripts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from torch import nn

from experiments.paper_scale.settings import Choice
from loca_theory.errors import InvalidArgumentError, ResourceError


@dataclass
class PreparedRun:
    """A model and its data, ready to be adapted and trained."""

    model: nn.Module
    train: Any
    evaluation: Any  # None for no evaluation
    collate: Callable[[Any], Any]  # makes a batch of examples
    metric: str  # that is reported
    measure: Callable[[Any], dict[str, float]] | None = None  # metrics of the predictions
    loss: Callable[..., Any] | None = None  # replaces the Trainer's
    # Called with the trained model and a folder for files; returns further metrics.
    afterwards: Callable[[nn.Module, Path], dict[str, float]] = lambda *_: {}


@contextmanager
def errors_as_resource_errors(source: object, option: str) -> Iterator[None]:
    """Raise any error of reading as one line that names the source and the option to change."""
    try:
        yield
    except Exception as error:
        cause = error.__cause__ or error
        raise ResourceError(
            f"{source} cannot be read ({type(cause).__name__}: {str(cause)[:160]}); "
            f"another can be given with {option}"
        ) from error


def load_pretrained(kind: Any, choice: Choice, **options: Any) -> Any:
    """Load an object of a class of transformers or diffusers."""
    with errors_as_resource_errors(choice.source, "--model"):
        return kind.from_pretrained(choice.source, **options)


def read_data(choice: Choice) -> dict[str, Any]:
    """The training split and the evaluation splits of a data set, by name."""
    task = choice.family.tasks[choice.task]
    parts = ["train", *task.evaluation]
    options: dict[str, Any] = (
        {} if choice.data else {"name": task.config, "revision": task.revision}
    )
    with errors_as_resource_errors(choice.data or task.data, "--data"):
        loaded = datasets.load_dataset(choice.data or task.data, split=parts, **options)
    return dict(zip(parts, loaded, strict=True))


def column(data: Any, names: tuple[str, ...]) -> str:
    """The first of these columns that the data have."""
    for name in names:
        if name in data.column_names:
            return name
    raise InvalidArgumentError(
        f"the data lack the column {' or '.join(names)}: they have {', '.join(data.column_names)}"
    )

"""The methods that are compared, and the descriptions of their increments."""

from __future__ import annotations

from typing import Any

from experiments.finetuning.protocol import Configuration
from experiments.finetuning.session import Session
from loca_theory.errors import InvalidArgumentError

HEADLINE = ("linear-probing", "full", "bitfit", "lora", "dora", "adalora", "vera", "fourierft",
            "loca", "loca-charged", "loca-v1", "loca-reselect")  # fmt: skip
VARIANTS = ("loca-v1", "loca-v2", "loca-v3", "loca-v4", "loca-v5", "loca")
SEARCHES = ("loca-eight-direction", "loca-swap", "loca-reselect", "loca-gradient")
BUDGETED = ("lora", "fourierft", "loca-v1", "loca", "loca-charged", "loca-reselect")
RANKS = {"text": (1, 2, 4, 8), "vision": (1, 2, 4, 8), "generation": (1, 2, 4, 8)}
_QUICK_RANKS = (1, 2)
_POOL = {"text": 8, "vision": 1, "generation": 2}


def tasks_of(session: Session, task: str | None) -> list[str]:
    """The given task; without one ``vision``, or every task with ``--full``."""
    return [task] if task else ["vision", "text", "generation"] if session.full else ["vision"]


def ranks(session: Session, task: str) -> tuple[int, ...]:
    """Budgets that are compared on a task."""
    return _QUICK_RANKS if session.quick else RANKS[task]


def configurations(
    session: Session, task: str, names: tuple[str, ...], r: int | None = None
) -> list[Configuration]:
    """One configuration per method, at the budget ``r`` or, if it is None, at that of the task.

    Linear probing is dropped if the task has no new head.
    """
    own = session.settings(task)["r"]
    has_head = "head" in session.settings(task)
    if names == ("linear-probing",) and not has_head:
        msg = f"linear probing trains a new head, and {task} has none"
        raise InvalidArgumentError(msg)
    if "linear-probing" in names and not has_head:
        session.say(f"note: linear probing is skipped, because {task} has no new head to train")
    chosen = [name for name in names if has_head or name != "linear-probing"]
    return [Configuration(task, name, r or own) for name in chosen]


def described(session: Session) -> Any:
    """Make the argument ``analyse`` of :meth:`Session.run_on_all_seeds`.

    Full fine-tunes get reconstruction errors, and the runs of the first seed get images.
    """

    def analyse(configuration: Configuration, seeds: tuple[int, ...]) -> dict[str, Any] | None:
        if seeds[0] != 0:
            return None
        # Add the task's own budget, which is not among the ranks of a quick run.
        is_full = configuration.method == "full"
        budgets = {*ranks(session, configuration.task), configuration.r} if is_full else ()
        pool = _POOL.get(configuration.task, 1)
        return {"ranks": sorted(budgets), "pool": pool, "seeds": list(seeds if is_full else seeds[:1])}

    return analyse

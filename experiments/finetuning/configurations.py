"""The methods that are compared, and the descriptions of their increments."""

from __future__ import annotations

from typing import Any

from experiments.finetuning.methods import find_method
from experiments.finetuning.protocol import Configuration
from experiments.finetuning.session import Session
from experiments.finetuning.settings import task_names
from loca_theory.errors import InvalidArgumentError

RANKS = (1, 2, 4, 8)
_QUICK_RANKS = (1, 2)
# Side length of the blocks whose means are the pixels of an image of an increment.
_POOL = {"small": 1, "text": 8}


TASKS = f"{', '.join(task_names())}.  [default: all but text]"


def tasks_of(session: Session, task: str | None) -> list[str]:
    """The given task; without one all small tasks, or in a quick session one of each kind."""
    if task:
        return [task]
    small = [name for name in task_names() if session.settings(name)["grid"] == "small"]
    if not session.quick:
        return small
    return list({session.settings(name)["module"]: name for name in reversed(small)}.values())[::-1]


def ranks(session: Session) -> tuple[int, ...]:
    """Budgets that are compared."""
    return _QUICK_RANKS if session.quick else RANKS


def configurations(
    session: Session, task: str, names: tuple[str, ...], r: int | None = None
) -> list[Configuration]:
    """One configuration per method, at the budget ``r`` or, if it is None, at that of the task.

    Methods that are not run on tasks of this size are dropped, unless none is left.
    """
    chosen = session.settings(task)
    kept = [name for name in names if chosen["grid"] in find_method(name).lowest]
    if len(kept) < len(names):
        dropped = ", ".join(name for name in names if name not in kept)
        msg = f"{dropped} cannot be run on {task}"
        if not kept:
            msg += "; choose another method or task"
            raise InvalidArgumentError(msg)
        session.say(f"note: {msg}")
    return [Configuration(task, name, r or chosen["r"]) for name in kept]


def described(session: Session) -> Any:
    """Make the argument ``analyse`` of :meth:`Session.run_on_all_seeds`.

    Full fine-tunes get reconstruction errors, and the runs of the first seed get images.
    """

    def analyse(configuration: Configuration, seeds: tuple[int, ...]) -> dict[str, Any] | None:
        if seeds[0] != 0:
            return None
        # Add the task's own budget, which is not among the ranks of a quick run.
        is_full = configuration.method == "full"
        budgets = {*ranks(session), configuration.r} if is_full else ()
        pool = _POOL[session.settings(configuration.task)["grid"]]
        described = seeds if is_full else seeds[:1]
        return {"ranks": sorted(budgets), "pool": pool, "seeds": list(described)}

    return analyse

"""What is random in a variant of a task: variants of different kinds can share it."""

from __future__ import annotations

import random

from experiments.docstrings import OTHER_PACKAGES, PACKAGES
from experiments.finetuning.settings import kind_of

_ALL_PACKAGES = (*PACKAGES, *OTHER_PACKAGES)


def draw_of(task: str) -> str:
    """The draw of a variant; for a task that is not a variant, its name.

    The seed of what is random is the variant's number, whatever its kind. So ``digits-3`` and
    ``small-digits-3`` have the same new digits, ``docstrings-3`` and ``source-3`` the same
    packages, and two numbers can give the same turn or package.
    """
    kind = kind_of(task)
    if kind == task:
        return task
    source = random.Random(int(task.removeprefix(f"{kind}-")))
    if kind in ("digits", "small-digits"):
        return f"digits {sorted(source.sample(range(10), 5))}"
    if kind == "turned":
        return f"turn {source.randint(1, 7)}"
    if kind == "generation":
        return f"text of {source.choice(_ALL_PACKAGES)}"
    shuffled = list(_ALL_PACKAGES)
    source.shuffle(shuffled)
    return f"packages {sorted(shuffled[:6])}"

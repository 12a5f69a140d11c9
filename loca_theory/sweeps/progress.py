"""Progress of a sweep, in a terminal, a log file or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from loca_theory._words import counted

_SECONDS_BETWEEN_LINES = 60


class Bar(Progress):
    """A progress bar in a terminal, with the remaining time."""

    def __init__(self, title: str, unit: str, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(None),
            MofNCompleteColumn(separator=" of ", table_column=Column(no_wrap=True)),
            TextColumn(unit),
            TimeRemainingColumn(compact=True),
        )
        super().__init__(*columns, console=console, transient=True, expand=True)
        self._task = self.add_task(title, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        self.update(self._task, completed=done, total=total)

    def title(self, text: str) -> None:
        """Change the text before the bar."""
        self.update(self._task, description=text)


class LogLines:
    """Lines for a log file: how much is done, at most once a minute.

    Args:
        title: What is done.
        unit: What is counted.
        console: Where the lines are printed.
        clock: The time in seconds.
    """

    def __init__(
        self, title: str, unit: str, console: Console, clock: Callable[[], float] = monotonic
    ) -> None:
        self._title, self._unit, self._console, self._clock = title, unit, console, clock
        self._start = self._last = clock()

    def __call__(self, done: int, total: int) -> None:
        """Print how much is done, and how long the remainder takes at this speed."""
        now = self._clock()
        if now - self._last < _SECONDS_BETWEEN_LINES:
            return
        self._last = now
        minutes = (now - self._start) / 60
        text = f"{self._title}: {done:,} of {total:,} {self._unit} in {_minutes(minutes)}"
        if done:
            text += f", about {_minutes(minutes * (total - done) / done)} left"
        self._console.print(text, soft_wrap=True, highlight=False, markup=False)

    def title(self, text: str) -> None:
        """Change the text before the count."""
        self._title = text


def _minutes(number: float) -> str:
    return counted(round(number), "minute")


def progress_bar(
    title: str, unit: str, *, is_shown: bool = True
) -> AbstractContextManager[Bar | LogLines | None]:
    """Show a bar if stderr is a terminal, else a line a minute; None if nothing is to be shown."""
    console = Console(stderr=True)
    if not is_shown:
        return nullcontext()
    if console.is_terminal:
        return Bar(title, unit, console)
    return nullcontext(LogLines(title, unit, console))


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar in a terminal, a line in a notebook, and a line a minute elsewhere."""
    if not Console().is_jupyter:
        with progress_bar(title, "points") as bar:
            yield bar
        return
    from IPython.display import display  # of the notebook

    line: Any = display({"text/plain": title}, raw=True, display_id=True)
    try:
        yield lambda done, total: line.update(
            {"text/plain": f"{title}: {done} of {total}"}, raw=True
        )
    finally:
        line.update({"text/plain": ""}, raw=True)

"""Progress and notes on stderr, so that stdout has only results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.console import Console

from loca_theory.cli.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, Task, TaskID


def note(text: str, *, quiet: bool) -> None:
    """Print a note on stderr, on one line even if it names a file with a line break in its name."""
    if not quiet:
        click.echo(f"note: {printable(' '.join(text.splitlines()))}", err=True)


class Bar:
    """A visible progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        self._progress.update(self._task, completed=done, total=total)

    def title(self, text: str) -> None:
        """Change the text before the bar."""
        self._progress.update(self._task, description=text)


@contextmanager
def progress_bar(title: str, unit: str, *, quiet: bool) -> Iterator[Bar | None]:
    """Show a bar with the remaining time if stderr is a terminal.

    Yields:
        The bar; None if none is shown.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(None), _count_column(unit))
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield Bar(bar, bar.add_task(title, total=None))


def _count_column(unit: str) -> ProgressColumn:
    """Make the column of a bar that shows how much is done and the remaining time."""
    from rich.progress import ProgressColumn
    from rich.table import Column
    from rich.text import Text

    class Count(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(_in_words(task, unit))

    return Count(Column(no_wrap=True))


def _in_words(task: Task, unit: str) -> str:
    if not task.total:
        return "starting"
    text = f"{task.completed:.0f} of {task.total:.0f} {unit}"
    if task.finished or task.time_remaining is None:
        return text
    return f"{text}, about {timedelta(seconds=round(task.time_remaining))} left"

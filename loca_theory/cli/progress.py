"""Progress and notes, on stderr so that stdout holds results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import click
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import ProgressColumn, Task


def note(text: str, *, quiet: bool) -> None:
    """Say something beside the result."""
    if not quiet:
        click.echo(f"note: {text}", err=True)


@contextmanager
def progress_bar(
    title: str, unit: str, *, quiet: bool
) -> Iterator[Callable[[int, int], None] | None]:
    """A bar with the time left, where stderr is a terminal; nothing elsewhere.

    Args:
        title: What is being done.
        unit: What is counted, in the plural.
        quiet: Show nothing.

    Yields:
        A function to call with (finished, total), or None.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(None), count_column(unit))
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def count_column(unit: str) -> ProgressColumn:
    """The column of a bar that says how much is done and how long the rest may take."""
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

"""Progress of a sweep, in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


def progress_bar(
    title: str, unit: str, *, is_shown: bool = True
) -> AbstractContextManager[Bar | None]:
    """Show a bar if it is to be shown and stderr is a terminal; the context is None if not."""
    console = Console(stderr=True)
    return Bar(title, unit, console) if is_shown and console.is_terminal else nullcontext()


@contextmanager
def progress_of(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar in a terminal, or a line in a notebook; the context is None elsewhere."""
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

"""Print what was left out of a result and why, and remarks on matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from loca_theory.cli.command import in_flags
from loca_theory.cli.printable import note, printable

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.checkpoints.measure.rows import Matrix
    from loca_theory.checkpoints.source.checkpoint import Skipped

_INCOMPLETE = 4
_MOST_REASONS = 8


def note_damaged(skipped: Sequence[Skipped]) -> int:
    """Print a note if matrices are damaged; return the exit code: 4 if there are any, else 0."""
    damaged = [row for row in skipped if row.damaged]
    if not damaged:
        return 0
    first = f"{damaged[0].name}: {damaged[0].reason}"
    note(f"left out because they are damaged: {len(damaged)}, the first: {first}")
    return _INCOMPLETE


def print_skipped(out: Console, skipped: Sequence[Skipped]) -> None:
    """Print the skipped matrices by reason."""
    has_several = len({row.tuned for row in skipped}) > 1
    names = (
        f"{short_name(row.name)} ({row.tuned})" if has_several else short_name(row.name)
        for row in skipped
    )
    cases = (row.case for row in skipped)
    _print_grouped(out, "Left out", zip(cases, names, strict=True))


def print_remarks(out: Console, matrices: Sequence[Matrix]) -> None:
    """Print the remarks on matrices by text."""
    remarks = [(text, short_name(row.name)) for row in matrices for text in row.note.split("; ")]
    _print_grouped(out, "Remarks", dict.fromkeys(remark for remark in remarks if remark[0]))


def _print_grouped(out: Console, title: str, named: Iterable[tuple[str, str]]) -> None:
    """Print names by reason or remark, each with its first names."""
    groups: dict[str, list[str]] = {}
    for text, name in named:
        groups.setdefault(text, []).append(name)
    if not groups:
        return
    out.print(f"\n{title}: {sum(map(len, groups.values()))}", style="bold")
    for text, names in list(groups.items())[:_MOST_REASONS]:
        further = f" and {len(names) - 2} more" if len(names) > 2 else ""
        out.print(printable(f"  {in_flags(text)}: {', '.join(names[:2])}{further}"))
    if len(groups) > _MOST_REASONS:
        out.print(f"  … and {len(groups) - _MOST_REASONS} more, in --format json")


def short_name(name: str) -> str:
    """The name of a weight as tables show it."""
    return name.removesuffix(".weight")

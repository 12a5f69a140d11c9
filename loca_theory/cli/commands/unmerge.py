"""``loca-theory unmerge``: recover the adapter that was merged into a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory._words import first_of
from loca_theory.checkpoints.source.paths import check_paths
from loca_theory.cli.columns import meanings_of, print_pointer, printed
from loca_theory.cli.commands.left_out import note_damaged, print_skipped, short_name
from loca_theory.cli.options import DEFAULT_OUT, Common, command_of, demo_option
from loca_theory.cli.output import Rows, console, emit
from loca_theory.cli.printable import printable
from loca_theory.cli.running import running

if TYPE_CHECKING:
    from loca_theory.checkpoints import Unmerged
    from loca_theory.checkpoints.unmerging.rows import UnmergedLayer

# Modules that are named of those that are not in the adapter.
_NAMED = 3
# Columns of the printed table.
_COLUMNS = (
    printed("stored in", "format"),
    printed("changed", "changed", ".1%"),
    printed("adapter", "outcome"),
    printed("merged", "recipe"),
    printed("inside", "inside", ".2%"),
    printed("held out", "held_out", ".0%"),
    printed("same bits", "identical", ".2%"),
    printed("by SVD", "identical_svd", ".2%"),
)


def printed_columns() -> dict[str, str]:
    """Meanings of the columns of the printed table."""
    from loca_theory.checkpoints.unmerging.rows import UnmergedLayer

    return meanings_of(_COLUMNS, UnmergedLayer)


@command_of(
    "checkpoints.unmerging.unmerge:unmerge",
    click.argument("base", metavar="[BASE]", required=False),
    click.argument("merged", metavar="[MERGED]", required=False),
    demo_option("Unmerge"),
    out="Folder for the tables, the results of each finished layer, from which an interrupted run "
    "continues, and the adapter, in lora or loca.  "
    f"[default: {DEFAULT_OUT}]",
    columns=printed_columns,
    rare=("dtype", "exclude", "max_size", "device", "jobs"),
    without=("base", "merged", "model"),
)
def command(
    *, common: Common, base: str | None, merged: str | None, demo: bool, **arguments: Any
) -> int:
    """Recover the LoRA or LoCA that was merged into a checkpoint, and count equal bits.

    A merged checkpoint is rounded, and each stored entry tells an interval in which the entry of
    the change was. Where a matrix of low rank, or of few cosine components, lies in all of them, it
    is the change that was made, up to what the rounding hides. Where too few entries changed, or
    the change is neither, nothing is claimed. A killed run continues where it was.

    \b
    Examples:
      loca-theory unmerge --demo
      loca-theory unmerge base/ merged/ --out adapter
      loca-theory unmerge base/ merged/ --include q_proj --format json
    """
    paths = [path for path in (base, merged) if path is not None]
    if len(paths) != (0 if demo else 2):
        raise click.UsageError("give BASE and MERGED, or only --demo")
    check_paths(paths)
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints import demo_pair, unmerge
    from loca_theory.checkpoints.form.folder import check_folder
    from loca_theory.checkpoints.unmerging.result import EITHER

    folder = check_folder(common.folder, EITHER)
    with running(common, "unmerging", "matrices") as runner:
        sources = demo_pair(merged=True) if demo else paths
        result = unmerge(*sources, runner=runner, **arguments)
    files = result.save(folder)
    common.note_written(files)
    document = {**result.to_json(), "files": [str(path) for path in files]}
    emit(document, lambda: _print(result, folder), common)
    return note_damaged(result.skipped)


def _print(result: Unmerged, folder: Path) -> None:
    out = console()
    cells = [
        {
            "matrix": printable(short_name(row.name)),
            "shape": "×".join(map(str, row.shape)),
            **{column.title: column.text(row) for column in _COLUMNS},
            "adapter": _adapter(row),  # after the columns of its layer
        }
        for row in result.layers
    ]
    if cells:
        Rows(cells).print(out)
        print_pointer(out, "unmerge")
    out.print(f"\n{result.verdict}")
    if outside := result.changed_outside:
        named = first_of(list(map(printable, outside)), _NAMED)
        out.print(f"Not in the adapter, though they changed: {named}.")
    for key in result.adapters:
        out.print(f"An adapter is in {folder / key}.", soft_wrap=True)
    print_skipped(out, result.skipped)


def _adapter(row: UnmergedLayer) -> str:
    """The form and size, or why there is none."""
    if row.form is None:
        return row.outcome
    return f"rank {row.rank}" if row.components is None else f"{row.components:,} cosines"

"""``loca-theory figures``: draw the paper's figures from stored data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.command import in_flags
from loca_theory.cli.options import DEFAULT_OUT, Common, command_of
from loca_theory.cli.output import Rows, console, emit
from loca_theory.cli.running import running

if TYPE_CHECKING:
    from loca_theory.plotting.paper_figure import PaperFigure


@command_of(
    "plotting.drawing:figure",
    click.argument("ids", nargs=-1, metavar="[ID]..."),
    click.option("--list", "only_list", is_flag=True, help="List the figures; draw none."),
    out=f"Folder for figures and the tables computed for them.  [default: {DEFAULT_OUT}]",
    columns=None,
    rare=("seed", "device", "figsize"),
    without=("label", "out", "colors", "labels", "log"),
    figsize={"metavar": "WxH"},
    results={
        "help": "Folder with stored tables, searched with its subfolders.  [default: the folder of "
        "--out]",
    },
)
def command(
    *,
    common: Common,
    ids: tuple[str, ...],
    only_list: bool,
    figsize: tuple[float, float] | None,
    **arguments: Any,
) -> None:
    """Draw the paper's figures, or only the named ones, such as sim_1.

    Each figure is drawn from stored tables. If a simulation's table, ID.parquet, is missing, or was
    computed with other settings or with another seed than a given --seed, it is computed and stored
    first, which takes some minutes for all figures. Tables of analyze, verify and the fine-tuning
    experiments are not computed here; if one is missing, a note gives the command that computes it.
    Without ID, the command draws all figures that can be drawn. The figures of the experiments are
    drawn in a checkout of the project only.

    \b
    Examples:
      loca-theory figures --list
      loca-theory figures sim_1 sim_2 sim_3
      loca-theory figures --results figures --out drawn
    """
    from loca_theory.plotting.catalogue import EXPERIMENTS, FIGURES, WITHOUT_EXPERIMENTS
    from loca_theory.plotting.drawing import NotStoredError, UndrawableError, find_drawing
    from loca_theory.plotting.options import Options
    from loca_theory.sweeps.files import writable_folder

    if only_list:
        _print_list(FIGURES.values(), common)
        return
    asked = Options.checked(figsize)
    for label in ids:
        # Reports missing tables before anything is computed.
        find_drawing(label, out=common.folder, **arguments)
    written, missing = [], []
    for label in ids or FIGURES:
        try:
            drawing = find_drawing(label, out=common.folder, **arguments)
            if drawing.source is None:
                common.note(
                    f"{label}: drawn from {', '.join(str(table.path) for table in drawing.tables)}"
                )
            writable_folder(common.folder)  # or fail before anything is computed
            with running(common, label) as runner:
                _, files = drawing.draw(runner, asked)
            shows = drawing.paper.shows
            written.append({"figure": label, "shows": shows, "files": list(map(str, files))})
        except (NotStoredError, UndrawableError) as error:
            # Fail if the user named this figure; otherwise draw the others.
            if ids:
                raise
            reason = in_flags(str(error))
            common.note(f"not drawn: {reason}")
            missing.append({"figure": label, "reason": reason})
    if not (ids or EXPERIMENTS):
        common.note(WITHOUT_EXPERIMENTS)

    def show() -> None:
        for entry in written:
            click.echo("\n  ".join((f"{entry['figure']}: {entry['shows']}", *entry["files"])))

    document = {"figures": written, "not_drawn": missing}
    emit(document, show, common, "figures", ("figure", "shows", "files"))


def _print_list(figures: Iterable[PaperFigure], common: Common) -> None:
    """Print a line per figure: its name, what it is, and where the paper has it."""
    rows = [
        {"figure": figure.label, "title": figure.title, "in_paper": figure.in_paper}
        for figure in figures
    ]
    cells = [
        {"figure": row["figure"], "title": row["title"], "in the paper": row["in_paper"]}
        for row in rows
    ]
    table = Rows(cells, {"title": "left", "in the paper": "left"})
    emit({"figures": rows}, lambda: table.print(console()), common, "figures")

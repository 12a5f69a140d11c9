"""``loca-theory figures``: draw the paper's figures from stored data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.command import in_flags
from loca_theory.cli.options import DEFAULT_OUT, Common, Folder, command_of
from loca_theory.cli.output import emit
from loca_theory.cli.progress import note
from loca_theory.cli.stores import running

if TYPE_CHECKING:
    from loca_theory.plotting.drawing import Drawing


@command_of(
    "plotting.drawing:figure",
    click.argument("labels", nargs=-1, metavar="[ID]..."),
    out=f"Folder for figures and the tables computed for them.  [default: {DEFAULT_OUT}]",
    rare=("seed", "device"),
    without=("label", "out"),
    results={
        "type": Folder(),
        "metavar": "DIR",
        "help": "Folder with stored tables, searched with its subfolders.  [default: the folder of "
        "--out]",
    },
)
def command(*, common: Common, labels: tuple[str, ...], results: Path | None) -> None:
    """Draw the paper's figures, or only the named ones, such as sim_1.

    Each figure is drawn from stored tables. If the table of a simulation, ID.parquet, is missing or
    belongs to other settings, it is computed with --seed and stored first, which takes some
    minutes for all figures. Tables of analyze, verify and the fine-tuning experiments are not
    computed here; if one is missing, a note gives the command that computes it. Without ID, the
    command draws all figures that can be drawn. The figures of the experiments are drawn in a
    checkout of the project only.

    \b
    Examples:
      loca-theory figures sim_1 sim_2 sim_3
      loca-theory figures --results figures --out drawn
    """
    from loca_theory.plotting.catalogue import EXPERIMENTS, FIGURES, WITHOUT_EXPERIMENTS
    from loca_theory.plotting.drawing import NotStoredError, UndrawableError, find_drawing

    find = partial(
        find_drawing,
        results=results,
        out=common.folder,
        seed=common.seed,
        device=common.device,
    )
    for label in labels:
        find(label)  # reports missing tables before anything is computed
    written, missing = [], []
    for label in labels or FIGURES:
        try:
            written.append(_draw(find(label), common))
        except (NotStoredError, UndrawableError) as error:
            # Fail if the user named this figure; otherwise draw the others.
            if labels:
                raise
            reason = in_flags(str(error), click.get_current_context().command)
            note(f"not drawn: {reason}", quiet=common.quiet)
            missing.append({"figure": label, "reason": reason})
    if not (labels or EXPERIMENTS):
        note(WITHOUT_EXPERIMENTS, quiet=common.quiet)

    def show() -> None:
        for entry in written:
            click.echo("\n  ".join((f"{entry['figure']}: {entry['shows']}", *entry["files"])))

    emit(
        {"figures": written, "not_drawn": missing},
        show,
        common,
        rows=[{**entry, "files": " ".join(entry["files"])} for entry in written],
        columns=("figure", "shows", "files"),
    )


def _draw(drawing: Drawing, common: Common) -> dict[str, Any]:
    paper = drawing.paper
    if drawing.source is None:
        tables = ", ".join(map(str, drawing.tables))
        note(f"{paper.label}: drawn from {tables}", quiet=common.quiet)
        drawn = drawing.draw()
    else:
        from loca_theory.sweeps import ResultStore

        store = ResultStore(common.folder / "points")
        with running(common, store, paper.label) as runner:
            drawn = drawing.draw(runner)
    files = [str(path) for path in drawn.files]
    return {"figure": paper.label, "shows": paper.shows, "files": files}

"""``loca-theory figures``: draw the paper's figures from stored data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.command import in_flags
from loca_theory.cli.options import DEFAULT_OUT, DEVICE, SEED, WORKERS, Common, Folder, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.stores import running

if TYPE_CHECKING:
    from loca_theory.plotting.drawing import Drawing


@click.command("figures")
@click.argument("labels", nargs=-1, metavar="[ID]...")
@click.option(
    "--results",
    type=Folder(),
    metavar="DIR",
    help="Folder with stored tables, searched with its subfolders.  [default: the folder of --out]",
)
@options(
    SEED,
    DEVICE,
    *WORKERS,
    out=f"Folder for figures and the tables computed for them.  [default: {DEFAULT_OUT}]",
)
@click.pass_context
def command(
    ctx: click.Context, *, common: Common, labels: tuple[str, ...], results: Path | None
) -> None:
    """Draw the paper's figures, or only the named ones, such as sim_1.

    Each figure is drawn from stored tables. If the table of a simulation, ID.parquet, is missing or
    belongs to other settings, it is computed with --seed and stored first, which takes some
    minutes for all figures. Tables of `analyze`, `verify` and the fine-tuning experiments are not
    computed here; if one is missing, a note gives the command that computes it. Without ID, the
    command draws all figures that can be drawn.

    \b
    Examples:
      loca-theory figures sim_1 sim_2 sim_3
      loca-theory figures --results figures --out drawn
    """
    from loca_theory.plotting import FIGURES
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
            reason = in_flags(str(error), ctx.command)
            note(f"not drawn: {reason}", quiet=common.quiet)
            missing.append({"figure": label, "reason": reason})
    match common.output_format:
        case "json":
            print_json({"figures": written, "not_drawn": missing})
        case "csv":
            print_csv(
                [{**entry, "files": " ".join(entry["files"])} for entry in written],
                ("figure", "shows", "files"),
            )
        case _:
            for entry in written:
                click.echo(f"{entry['figure']}: {entry['shows']}")
                for path in entry["files"]:
                    click.echo(f"  {path}")


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

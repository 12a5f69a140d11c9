"""``loca-theory figures``: the paper's figures, redrawn from stored data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory import __version__, plotting
from loca_theory.cli.options import Common, common_options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note, progress_bar
from loca_theory.cli.stores import report_rejected
from loca_theory.expressivity import Simulation
from loca_theory.sweeps import ResultStore, manifest
from loca_theory.sweeps.manifest import command_line

if TYPE_CHECKING:
    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study


@click.command("figures")
@click.argument("labels", nargs=-1, metavar="[ID]...")
@common_options
def command(*, common: Common, labels: tuple[str, ...]) -> None:
    """Draw figures of the paper; without ID, all of them.

    Each is drawn from its stored table ID.parquet in the output folder. A table that is not there,
    or belongs to other settings, is computed and stored first.

    \b
    Examples:
      loca-theory figures sim_1 sim_2 sim_3
      loca-theory figures --out figures
    """
    chosen = [plotting.find_figure(label) for label in (labels or plotting.FIGURES)]
    written = [_make(figure, common) for figure in chosen]
    match common.output_format:
        case "json":
            print_json({"figures": written})
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


def _make(figure: plotting.PaperFigure, common: Common) -> dict[str, Any]:
    label, folder = figure.label, common.folder
    source = replace(figure.source(), seed=common.seed, jobs=common.jobs, cluster=common.cluster)
    if isinstance(source, Simulation):
        source = source.on_device(common.device)
    wanted = {"grid": source.describe(), "seed": source.seed}
    if not _is_current(folder, label, wanted):
        _compute(figure, source, wanted, common)
    else:
        note(f"{label}: drawn from {folder / label}.parquet", quiet=common.quiet)
    table, _ = plotting.load_rows(folder, label)
    paths = plotting.save_figure(lambda: figure.draw(table), folder, label)
    data = [folder / f"{label}.parquet", folder / f"{label}.manifest.json"]
    return {
        "figure": label,
        "shows": figure.shows,
        "files": [str(path) for path in (*paths, *data)],
    }


def _is_current(folder: Path, label: str, wanted: dict[str, Any]) -> bool:
    if not plotting.is_stored(folder, label):
        return False
    _, origin = plotting.load_rows(folder, label)
    return origin.get("version") == __version__ and all(
        origin.get(key) == value for key, value in wanted.items()
    )


def _compute(
    figure: plotting.PaperFigure,
    source: Simulation | Study | ConvergenceStudy,
    wanted: dict[str, Any],
    common: Common,
) -> None:
    store = ResultStore(common.folder / "points", source.version)
    with progress_bar(figure.label, quiet=common.quiet) as progress:
        if isinstance(source, Simulation):
            rows, device = source.run(store=store, progress=progress), source.device
        else:
            tables = source.run(store=store, progress=progress)
            rows, device = tables[figure.table or "rows"], "cpu"
    report_rejected(store, common)
    origin = manifest(argv=command_line(), device=device, dtype="float64", **wanted)
    plotting.store_rows(rows, origin, common.folder, figure.label)

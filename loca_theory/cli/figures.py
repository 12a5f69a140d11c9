"""``loca-theory figures``: the paper's figures, redrawn from stored data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pandas as pd

from loca_theory import (
    InvalidArgumentError,
    LocaTheoryError,
    ResourceError,
    __version__,
    plotting,
)
from loca_theory.cli.options import DEFAULT_OUT, DEVICE, SEED, WORKERS, Common, Folder, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.stores import running
from loca_theory.expressivity import Simulation
from loca_theory.sweeps import ResultStore, find_tables, is_stored, load_rows, manifest, store_rows

if TYPE_CHECKING:
    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study


class NotStoredError(ResourceError):
    """The tables of a figure are not there, or cannot be told from others."""


class UndrawableError(LocaTheoryError):
    """The tables of a figure do not hold what it shows."""


@dataclass(frozen=True)
class _Drawing:
    """What a figure is drawn from, and where to.

    Attributes:
        tables: The tables, in the order in which the figure takes them.
        folder: Folder of the pictures.
        files: The tables' files, as far as they lie in the output folder.
    """

    tables: list[pd.DataFrame]
    folder: Path
    files: list[Path]


@click.command("figures")
@click.argument("labels", nargs=-1, metavar="[ID]...")
@click.option(
    "--results",
    type=Folder(),
    metavar="DIR",
    help="Folder with the stored tables, looked through with its subfolders.  "
    "[default: the folder of --out]",
)
@options(
    SEED,
    DEVICE,
    *WORKERS,
    out=f"Write figures here, and the tables that are computed for them.  [default: {DEFAULT_OUT}]",
)
def command(*, common: Common, labels: tuple[str, ...], results: Path | None) -> None:
    """Draw figures of the paper; without ID, all that can be.

    Each is drawn from stored tables. Those of the simulations, ID.parquet, are computed and stored
    first, with --seed, where they are not there or belong to other settings, some minutes for all
    of them; those that `analyze`, `verify` and the fine-tuning experiments leave are not, and what
    is missing is said.

    \b
    Examples:
      loca-theory figures sim_1 sim_2 sim_3
      loca-theory figures --results figures --out drawn
    """
    chosen = [plotting.find_figure(label) for label in (labels or plotting.FIGURES)]
    if results is not None and not results.is_dir():
        msg = f"there is no folder {results}; name the one that holds the stored tables"
        raise ResourceError(msg)
    common.cluster.check()
    folder = results or common.folder
    if labels:
        # What is missing is told before anything is computed.
        for figure in chosen:
            if isinstance(figure.data, plotting.Stored):
                _find_all(figure.label, figure.data, folder)
    written, missing = [], []
    for figure in chosen:
        try:
            written.append(_make(figure, common, folder))
        except (NotStoredError, UndrawableError) as error:
            # Who asked for this one has to know; who asked for all gets the others.
            if labels:
                raise
            note(f"not drawn: {error}", quiet=common.quiet)
            missing.append({"figure": figure.label, "reason": str(error)})
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


def _make(figure: plotting.PaperFigure, common: Common, results: Path) -> dict[str, Any]:
    match figure.data:
        case plotting.Computed() as data:
            drawing = _computed(figure.label, data, common, results)
        case plotting.Stored() as data:
            drawing = _stored(figure.label, data, common, results)
    try:
        paths = plotting.save_figure(
            lambda: figure.draw(*drawing.tables), drawing.folder, figure.label
        )
    except (InvalidArgumentError, LookupError, TypeError) as error:
        # The tables are those of a user, perhaps of another version or of nothing that was run.
        known = isinstance(error, InvalidArgumentError)
        why = error if known else f"its table lacks what it shows ({type(error).__name__}: {error})"
        msg = f"{figure.label} cannot be drawn: {why}"
        raise UndrawableError(msg) from error
    files = [str(path) for path in (*paths, *drawing.files)]
    return {"figure": figure.label, "shows": figure.shows, "files": files}


def _stored(label: str, data: plotting.Stored, common: Common, results: Path) -> _Drawing:
    """Tables that another command has left somewhere under ``results``."""
    found = _find_all(label, data, results)
    tables = [load_rows(path.parent, path.stem)[0] for path in found]
    # Pictures stand to the output folder as their tables to the results: beside each other, where
    # both are one.
    places = {path.parent.relative_to(results) for path in found}
    folder = common.folder / places.pop() if len(places) == 1 else common.folder
    note(f"{label}: drawn from {', '.join(map(str, found))}", quiet=common.quiet)
    return _Drawing(tables, folder, [])


def _find_all(label: str, data: plotting.Stored, results: Path) -> list[Path]:
    return [_find(label, name, maker, results) for name, maker in data.tables.items()]


def _find(label: str, name: str, maker: str, results: Path) -> Path:
    found = find_tables(results, [name])
    if not found:
        msg = f"{label} needs {name}.parquet, which is not under {results}; make it with "
        msg += f"`{maker}`, or name its folder with --results"
        raise NotStoredError(msg)
    if len(found) > 1:
        msg = f"{label} needs one {name}.parquet, and there are {', '.join(map(str, found))}; name "
        msg += "the folder of the one that is meant with --results"
        raise NotStoredError(msg)
    return found[0]


def _computed(label: str, data: plotting.Computed, common: Common, results: Path) -> _Drawing:
    """The table of a simulation or study, computed where it is not stored."""
    source = replace(data.source(), seed=common.seed)
    if isinstance(source, Simulation):
        source = source.on_device(common.device)
    wanted = {"grid": source.describe(), "seed": source.seed}
    name = data.shared_with or label
    folder = next(
        (place for place in (results, common.folder) if _is_current(place, name, wanted)), None
    )
    if folder is None:
        folder = common.folder
        _compute(name, data, source, wanted, common)
    else:
        note(f"{label}: drawn from {folder / name}.parquet", quiet=common.quiet)
    table, _ = load_rows(folder, name)
    names = (f"{name}.parquet", f"{name}.manifest.json") if folder == common.folder else ()
    return _Drawing([table], common.folder, [folder / name for name in names])


def _is_current(folder: Path, name: str, wanted: dict[str, Any]) -> bool:
    if not is_stored(folder, name):
        return False
    _, origin = load_rows(folder, name)
    return origin.get("version") == __version__ and all(
        origin.get(key) == value for key, value in wanted.items()
    )


def _compute(
    name: str,
    data: plotting.Computed,
    source: Simulation | Study | ConvergenceStudy,
    wanted: dict[str, Any],
    common: Common,
) -> None:
    store = ResultStore(common.folder / "points", source.version)
    with running(common, store, name) as runner:
        if isinstance(source, Simulation):
            rows, device = source.run(runner).to_json()["rows"], source.device
        else:
            tables = source.run(runner)
            rows, device = tables[data.table or "rows"], "cpu"
    origin = manifest(device=device, dtype="float64", **wanted)
    store_rows(rows, origin, common.folder, name)

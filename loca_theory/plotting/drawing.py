"""The paper's figures, drawn from stored tables; those of simulations are computed where needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from loca_theory import _arguments
from loca_theory._version import __version__
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.expressivity import Simulation
from loca_theory.plotting.canvas import save_figure
from loca_theory.plotting.paper import PaperFigure, Stored, find_figure
from loca_theory.sweeps import (
    DEFAULT_RUNNER,
    Runner,
    find_tables,
    is_stored,
    load_rows,
    store_rows,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loca_theory.convergence import ConvergenceStudy
    from loca_theory.dependence import Study

# Where commands and experiments write unless told otherwise.
_DEFAULT_RESULTS = Path("loca-results")


class NotStoredError(ResourceError):
    """The tables of a figure are not there, or cannot be told from others."""


class UndrawableError(LocaTheoryError):
    """The tables of a figure do not hold what it shows."""


def figure(
    label: str,
    results: str | Path | None = None,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    runner: Runner = DEFAULT_RUNNER,
) -> Figure:
    """Draw a figure of the paper from stored tables.

    Those of the simulations are computed where they are not stored, or belong to other settings.

    Args:
        label: Which; :data:`FIGURES` has all.
        results: Folder of the stored tables, looked through with its subfolders; None for ``out``,
            or else ``loca-results``.
        out: Where to write the figure, and the table that was computed for it; None for nowhere.
        seed: Root seed of a simulation.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, for one that needs dense matrices.
        runner: How it is computed, and where its finished points are kept.

    Returns:
        The figure; notebooks show it.

    Raises:
        InvalidArgumentError: there is no such figure, or an argument is of another type.
        NotStoredError: a table is not there, or there are several of its name.
        UndrawableError: the tables do not hold what it shows.
        ResourceError: a folder is not there or cannot be written to, or a table is damaged.
    """
    runner = _arguments.instance("runner", runner, Runner)
    return find_drawing(label, results, out, seed=seed, device=device).draw(runner).figure


def find_drawing(
    label: str,
    results: str | Path | None = None,
    out: str | Path | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
) -> Drawing:
    """Find out what a figure of the paper is drawn from, before anything is computed.

    Args:
        label: As for :func:`figure`, and the others as well.
        results: Folder of the stored tables.
        out: Where to write.
        seed: Root seed.
        device: Where dense linear algebra runs.

    Raises:
        InvalidArgumentError: there is no such figure.
        NotStoredError: a table is not there, or there are several of its name.
        ResourceError: the folder is not there.
    """
    paper = find_figure(label)
    folder = None if out is None else _arguments.path("out", out)
    if results is not None and not _arguments.path("results", results).is_dir():
        msg = f"there is no folder {results}; give that of the stored tables, or leave out "
        msg += 'results="..."'
        raise ResourceError(msg)
    where = Path(results or out or _DEFAULT_RESULTS)
    if isinstance(paper.data, Stored):
        tables = tuple(_find(label, *one, where) for one in paper.data.tables.items())
        return Drawing(paper, folder, where, tables)
    source = replace(paper.data.source(), seed=seed)
    if isinstance(source, Simulation):
        source = source.on_device(device)
    name = paper.data.shared_with or label
    for position in filter(None, (where, folder)):
        if _is_current(position, name, source):
            return Drawing(paper, folder, where, (position / f"{name}.parquet",))
    return Drawing(paper, folder, where, (), source)


@dataclass(frozen=True)
class Drawn:
    """A figure that has been drawn.

    Attributes:
        figure: The figure.
        files: Its files in the output folder: pictures, and the table and manifest that stand by
            them.
    """

    figure: Figure
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Drawing:
    """What a figure is drawn from.

    Attributes:
        paper: The figure of the paper.
        out: Where it is written; None for nowhere.
        results: Where tables were looked for.
        tables: The stored tables; none where they have to be computed.
        source: What computes them; None where they are stored.
    """

    paper: PaperFigure
    out: Path | None
    results: Path
    tables: tuple[Path, ...]
    source: Simulation | Study | ConvergenceStudy | None = None

    def draw(self, runner: Runner = DEFAULT_RUNNER) -> Drawn:
        """Draw it, and write what belongs to it where there is an output folder.

        Args:
            runner: How its table is computed, where it is not stored.

        Raises:
            UndrawableError: the tables do not hold what it shows.
            ResourceError: a table cannot be read, or the folder cannot be written to.
        """
        tables = self.tables
        if self.source is None:
            frames = [load_rows(path.parent, path.stem)[0] for path in tables]
        else:
            frame, tables = self._compute(self.source, runner)
            frames = [frame]
        try:
            drawn = self.paper.draw(*frames)
        except (InvalidArgumentError, LookupError, TypeError) as error:
            # The tables are those of a user, perhaps of another version or of nothing that was run.
            known = isinstance(error, InvalidArgumentError)
            lacks = f"its table lacks what it shows ({type(error).__name__}: {error})"
            msg = f"{self.paper.label} cannot be drawn: {error if known else lacks}"
            raise UndrawableError(msg) from error
        return Drawn(drawn, () if self.out is None else self._write(drawn, tables, self.out))

    def _write(self, drawn: Figure, tables: tuple[Path, ...], out: Path) -> tuple[Path, ...]:
        """Pictures stand to the output folder as their tables to the results, if these are one."""
        label, beside, folder = self.paper.label, (), out
        if isinstance(self.paper.data, Stored):
            positions = {path.parent.relative_to(self.results) for path in tables}
            folder = out / positions.pop() if len(positions) == 1 else out
        elif tables[0].parent == out:
            beside = (tables[0], tables[0].with_suffix(".manifest.json"))
        return (*save_figure(drawn, folder, label), *beside)

    def _compute(
        self, source: Simulation | Study | ConvergenceStudy, runner: Runner
    ) -> tuple[pd.DataFrame, tuple[Path, ...]]:
        data: Any = self.paper.data
        found = source.run(runner)
        frame = found.to_frame(data.table)
        if self.out is None:
            return frame, ()
        name = data.shared_with or self.paper.label
        stored, _ = store_rows(frame, found.manifest, self.out, name)
        return load_rows(self.out, name)[0], (stored,)


def _find(label: str, name: str, maker: str, results: Path) -> Path:
    found = find_tables(results, [name])
    if not found:
        msg = f"{label} needs {name}.parquet, which is not under {results}; make it with "
        msg += f'`{maker}`, or name its folder with results="..."'
        raise NotStoredError(msg)
    if len(found) > 1:
        msg = f"{label} needs one {name}.parquet, and there are {', '.join(map(str, found))}; name "
        msg += 'the folder of the one that is meant with results="..."'
        raise NotStoredError(msg)
    return found[0]


def _is_current(folder: Path, name: str, source: Simulation | Study | ConvergenceStudy) -> bool:
    """Whether a stored table is of these settings and this version of the package."""
    if not is_stored(folder, name):
        return False
    _, origin = load_rows(folder, name)
    wanted = {"version": __version__, "grid": source.describe(), "seed": source.seed}
    return all(origin.get(key) == value for key, value in wanted.items())

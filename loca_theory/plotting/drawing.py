"""The paper's figures, drawn from stored tables or, for simulations, computed when needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from loca_theory import _arguments
from loca_theory._version import __version__
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError
from loca_theory.expressivity.simulation import Simulation
from loca_theory.expressivity.theorem1.ordering import Ordering
from loca_theory.plotting.canvas import draw_as_asked, refuse_small_panels, save_figure
from loca_theory.plotting.catalogue import find_figure
from loca_theory.plotting.options import Options, UnfitOptionError
from loca_theory.plotting.paper_figure import Computed, PaperFigure
from loca_theory.plotting.styled_figure import Picture, in_style
from loca_theory.sweeps import Runner
from loca_theory.sweeps.runner import chosen_runner
from loca_theory.sweeps.tables import StoredTable, find_tables, is_stored, load_rows, store_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from loca_theory.plotting.paper_figure import Source

# The default output folder of commands and experiments.
_DEFAULT_RESULTS = Path("loca-results")


class NotStoredError(ResourceError):
    """A table of a figure is missing, or several tables have its name."""


class UndrawableError(LocaTheoryError):
    """The tables of a figure lack data that the figure shows."""


def figure(
    label: str,
    results: str | Path | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    device: str = "auto",
    figsize: tuple[float, float] | None = None,
    colors: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log: str = "",
    runner: Runner | None = None,
) -> Figure:
    """Draw a figure of the paper from stored tables.

    The table of a simulation is computed if it is not stored or was computed with other settings.

    Args:
        label: Label of the figure, a key of :data:`FIGURES`.
        results: Folder of the stored tables, searched with its subfolders; None for ``out``, or
            ``loca-results`` if ``out`` is None too.
        out: Folder to write the figure and a newly computed table to; None to write nothing.
        seed: Root seed of a simulation; None for the one of a stored table, or 0.
        device: ``auto``, ``cpu`` or ``cuda[:N]``, for simulations of dense matrices.
        figsize: Width and height of the figure in inches; None for its usual size.
        colors: Colours of lines, by the name of the method or search.
        labels: Texts for the names of methods or searches, in labels and legends.
        log: The axes to make logarithmic: ``"x"``, ``"y"`` or ``"xy"``.
        runner: Runs the computation and determines where finished points are stored.

    Returns:
        The figure; notebooks show it.

    Raises:
        InvalidArgumentError: there is no such figure, an argument has the wrong type, or the figure
            does not follow an option.
        NotStoredError: a table is missing, or several tables have its name.
        UndrawableError: the tables lack data that the figure shows.
        ResourceError: a folder does not exist or cannot be written to, or a table is damaged.
    """
    runner, asked = chosen_runner(runner), Options.checked(figsize, colors, labels, log)
    drawing = find_drawing(label, results, out, seed=seed, device=device)
    drawn, _ = drawing.draw(runner, asked)
    return drawn


def find_drawing(
    label: str,
    results: str | Path | None = None,
    out: str | Path | None = None,
    *,
    seed: int | None = None,
    device: str = "auto",
) -> Drawing:
    """Find the data that a figure is drawn from, without computing anything; as :func:`figure`."""
    paper = find_figure(label)
    folder = None if out is None else _arguments.path("out", out)
    if results is not None and not _arguments.path("results", results).is_dir():
        raise ResourceError(
            f"there is no folder {results}; name the folder of the stored tables, or leave out "
            'results="..."'
        )
    where = Path(results or out or _DEFAULT_RESULTS)
    if not isinstance(paper.data, Computed):
        tables = tuple(_find(label, *entry, where) for entry in paper.data.items())
        return Drawing(paper, folder, where, tables)
    source = paper.data.source
    if not isinstance(source, Ordering):  # which draws nothing
        source = replace(source, seed=seed or 0)
    if isinstance(source, Simulation):
        source = source.on_device(device)
    name = paper.data.shared_with or label
    for position in filter(None, (where, folder)):
        if _is_current(position, name, source, seed):
            return Drawing(paper, folder, where, (StoredTable(position / f"{name}.parquet"),))
    return Drawing(paper, folder, where, (), source)


@dataclass(frozen=True)
class Drawing:
    """A figure of the paper and the data that it is drawn from."""

    paper: PaperFigure
    out: Path | None
    results: Path  # searched for tables
    tables: tuple[StoredTable, ...]  # none if they have to be computed, by the source
    source: Source | None = None

    def draw(self, runner: Runner, asked: Options | None = None) -> tuple[Figure, tuple[Path, ...]]:
        """Draw the figure, write it if there is an output folder, and list what was written.

        The files are the pictures and, if the table was computed, the table and its manifest.
        """
        tables, frames = self.tables, []
        if self.source is not None:
            result, data = self.source.run(runner), cast("Computed", self.paper.data)
            frames = [result.to_frame(data.table)]
            if self.out is not None:
                name = data.shared_with or self.paper.label
                path, _ = store_rows(frames.pop(), result.manifest, self.out, name)
                tables = (StoredTable(path),)
        stored = (load_rows(table.path.parent, table.path.stem, table.table) for table in tables)
        frames += [table.to_pandas() for table, _ in stored]
        asked = asked or Options()
        try:
            with in_style():
                drawn = draw_as_asked(self.paper.label, partial(self.paper.draw, *frames), asked)
        except UnfitOptionError:
            raise
        except (InvalidArgumentError, LookupError, TypeError) as error:
            # The tables may come from another version of the package, or from elsewhere.
            is_refused = isinstance(error, InvalidArgumentError)
            lacks = f"its table lacks data that it shows ({type(error).__name__}: {error})"
            raise UndrawableError(
                f"{self.paper.label} cannot be drawn: {error if is_refused else lacks}"
            ) from error
        if isinstance(drawn, Picture):
            if asked.figsize is not None:
                refuse_small_panels(self.paper.label, drawn)
            drawn.caption = f"{self.paper.shows}. {drawn.caption}".strip()
        return drawn, () if self.out is None else self._write(drawn, tables, self.out)

    def _write(self, drawn: Figure, tables: tuple[StoredTable, ...], out: Path) -> tuple[Path, ...]:
        """Write the pictures to the same subfolder of ``out`` as the tables have in ``results``."""
        label, beside, folder = self.paper.label, (), out
        if not isinstance(self.paper.data, Computed):
            positions = {table.path.parent.relative_to(self.results) for table in tables}
            folder = out / positions.pop() if len(positions) == 1 else out
        elif (path := tables[0].path).parent == out:
            beside = (path, path.with_suffix(".manifest.json"))
        return (*save_figure(drawn, folder, label), *beside)


def _find(label: str, name: str, maker: str, results: Path) -> StoredTable:
    tables = find_tables(results, [name])
    if not tables:
        raise NotStoredError(
            f"{label} needs {name}.parquet, which is not under {results}; make it with "
            f'`{maker}`, or name its folder with results="..."'
        )
    if len(tables) > 1:
        paths = ", ".join(str(table.path) for table in tables)
        raise NotStoredError(
            f"{label} needs one {name}.parquet, but there are {paths}; "
            'name the folder of one of them with results="..."'
        )
    return tables[0]


def _is_current(folder: Path, name: str, source: Source, seed: int | None) -> bool:
    """Whether a table with these settings and of this version of the package is stored."""
    if not is_stored(folder, name):
        return False
    _, manifest = load_rows(folder, name)
    expected = {"version": __version__, "grid": source.describe()}
    if seed is not None and not isinstance(source, Ordering):
        expected["seed"] = seed
    return all(manifest.get(key) == value for key, value in expected.items())

"""Drawing of results: which pictures each type of result has, and functions that draw them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory._arguments import as_tuple
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods.names import known_name
from loca_theory.plotting.canvas import NamedPicture, save_figure
from loca_theory.sweeps import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# For the command of each result: its type, a heading, and the module whose function ``views`` lists
# its pictures. A module is imported only when it draws, because some modules import torch.
PICTURES = {
    "simulate": ("SimulationResult", "Reconstruction errors", "simulation"),
    "theorem1": ("OrderingResult", "The ordering of Theorem 1", "ordering"),
    "correlate": ("CorrelationResult", "Reconstruction under dependence", "dependence"),
    "toy": ("ToyResult", "The toy experiment", "convergence"),
    "analyze": ("Analysis", "Increments", "analysis"),
    "verify": ("VerificationResult", "Verdicts on the claims", "verdicts"),
}


def plot(
    result: Result,
    picture: str | None = None,
    *,
    methods: str | Iterable[str] | None = None,
    ranks: int | Iterable[int] | None = None,
    title: str | None = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw a result.

    ==================  ==========================================================================
    result              pictures; the first is drawn unless ``picture`` names another
    ==================  ==========================================================================
    SimulationResult    ``errors``
    CorrelationResult   ``crossings``; one picture per structure, with its name (this comes first if
                        there is only one structure); ``phase`` if there is one random spike
    ToyResult           ``recovery``, ``spectrum``, ``loss``
    Analysis            ``errors``, ``entries``, ``p-values``, ``spectra``, ``weights``, ``phase``,
                        ``methods`` if its tables have the data; for a single matrix ``errors``
                        comes last
    OrderingResult      ``margins``
    VerificationResult  ``verdicts``
    ==================  ==========================================================================

    Args:
        result: A result that a function such as ``simulate``, or ``load``, returned.
        picture: Name of the picture, one of ``result.pictures``; None for the first.
        methods: Names of the methods to draw; None for all of the result.
        ranks: LoRA ranks to draw; None for all of the result.
        title: Title of the figure; None for those that its panels have.
        figsize: Width and height of a new figure, in inches.
        ax: Axes to draw into if the picture is a single panel; None for a new figure.

    Returns:
        The figure; notebooks show it, and its ``savefig`` writes it.

    Raises:
        InvalidArgumentError: the result cannot be drawn, it has no such picture, method or rank, or
            ``ax`` is given and the picture has several panels.

    >>> from loca_theory.expressivity import simulate
    >>> plot(simulate(64, ranks=[2, 4], engine="exact")).axes[0].get_xlabel()
    'LoRA rank r'
    """
    _check_type(result)
    chosen = _chosen(result, methods, ranks)
    known = {view.name: view for view in views(chosen)}
    if not known:
        msg = f"result has no rows, so there is nothing to draw: {result!r}"
        raise InvalidArgumentError(msg)
    name = next(iter(known)) if picture is None else picture
    figure = find("picture", name, known).draw(ax=ax)
    if figsize is not None and ax is None:
        figure.set_size_inches(*figsize)
    if title is not None:
        panels = [ax] if ax is not None else figure.axes
        # What a picture says above its panels makes room for the title.
        if len(panels) == 1 and (ax is not None or not figure.get_suptitle()):
            panels[0].set_title(title)
        else:
            figure.suptitle(title)
    return figure


def picture_names(result: Result) -> tuple[str, ...]:
    """Names of the pictures of a result; none if results of this type cannot be drawn."""
    return tuple(view.name for view in views(result)) if result.command in PICTURES else ()


def _chosen(
    result: Result, methods: str | Iterable[str] | None, ranks: int | Iterable[int] | None
) -> Result:
    """The result with the rows of some methods and ranks only."""
    wanted: dict[str, tuple[Any, ...]] = {}
    if methods is not None:
        wanted["method"] = tuple(map(known_name, as_tuple(methods)))
    if ranks is not None:
        wanted["r"] = as_tuple(ranks)
    for column, values in wanted.items():
        # The column "method" of a table without ranks names something else, such as coders.
        mine = {
            name: rows
            for name, rows in vars(result).items()
            if isinstance(rows, tuple) and rows and hasattr(rows[0], "r")
            if hasattr(rows[0], column)
        }
        known = dict.fromkeys(getattr(row, column) for rows in mine.values() for row in rows)
        titles = {str(value): value for value in known}
        for value in values:
            find("rank" if column == "r" else column, str(value), titles)
        kept = {
            name: tuple(row for row in rows if getattr(row, column) in values)
            for name, rows in mine.items()
        }
        result = replace(result, **kept)
    return result


def views(result: Result) -> list[NamedPicture]:
    """List the pictures of a result, the most informative first; none if it has no rows."""
    _check_type(result)
    if result.to_frame().empty:
        return []
    _, _, module = PICTURES[result.command]
    drawing: Any = import_module(f"loca_theory.plotting.results.{module}")
    return drawing.views(result)


def _check_type(result: object) -> None:
    """Refuse results of a type that cannot be drawn."""
    if not isinstance(result, Result) or result.command not in PICTURES:
        kinds = ", ".join(kind for kind, _, _ in PICTURES.values())
        msg = f"{type(result).__name__} cannot be drawn; result must be one of {kinds}"
        raise InvalidArgumentError(msg)


def save_pictures(result: Result, folder: str | Path) -> list[Path]:
    """Write every picture of a result as PNG and PDF, and name the files after its command."""
    found, written = views(result), []
    for view in found:
        name = f"{result.command}-{view.name}" if len(found) > 1 else result.command
        written += save_figure(view.draw(), folder, name)
    return written

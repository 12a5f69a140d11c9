"""Drawing of results: which pictures each type of result has, and functions that draw them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory._arguments import as_tuple
from loca_theory._arguments import ranks as checked_ranks
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods.names import known_name
from loca_theory.plotting.canvas import (
    HEADLINE,
    NamedPicture,
    draw_as_asked,
    refuse_small_panels,
    save_figure,
)
from loca_theory.plotting.options import Options, check_text
from loca_theory.plotting.styled_figure import Picture, beside_users_style
from loca_theory.sweeps import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# For the command of each result: its type, a heading, and the module whose ``pictures_of`` lists
# its pictures. A module is imported only when it draws, because some modules import torch.
PICTURES = {
    "simulate": ("SimulationResult", "Reconstruction errors", "simulation"),
    "theorem1": ("OrderingResult", "The ordering of Theorem 1", "ordering"),
    "correlate": ("CorrelationResult", "Reconstruction under dependence", "dependence"),
    "toy": ("ToyResult", "The toy experiment", "convergence"),
    "analyze": ("Analysis", "Increments", "analysis"),
    "verify": ("VerificationResult", "Verdicts on the claims", "verdicts"),
}
# The argument that selects rows by a column.
_ARGUMENTS = {"method": "methods", "r": "ranks"}


def plot(
    result: Result,
    picture: str | None = None,
    *,
    methods: str | Iterable[str] | None = None,
    ranks: int | Iterable[int] | None = None,
    title: str | None = None,
    figsize: tuple[float, float] | None = None,
    ax: Axes | None = None,
    colors: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log: str = "",
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
        figsize: Width and height of a new figure, and of the file that ``savefig`` writes, in
            inches; one column of a paper is some (3.25, 2.4).
        ax: Axes to draw into if the picture is a single panel; None for a new figure.
        colors: Colours of lines, by the name of the method or search.
        labels: Texts for the names of methods or searches, in labels and legends.
        log: The axes to make logarithmic: ``"x"``, ``"y"`` or ``"xy"``.

    Returns:
        The figure; notebooks show it, and its ``savefig`` writes it. Its ``caption``, that of
        the result for its first picture, says what the lines are and how they were computed. The
        figure has the package's style where you have not chosen another, as by
        ``matplotlib.style.use``.

    Raises:
        InvalidArgumentError: the result cannot be drawn, it has no such picture, method or rank,
            an option is malformed, or ``ax`` is given and the picture has several panels.

    >>> from loca_theory.expressivity import simulate
    >>> plot(simulate(64, ranks=[2, 4], engine="exact")).axes[0].get_xlabel()
    'LoRA rank r'
    """
    asked = Options.checked(figsize, colors, labels, log)
    if title is not None:
        check_text("title", title)
    selected = _selection(methods, ranks)
    by_name = _by_name(result)
    name = next(iter(by_name)) if picture is None else picture
    _check_selection(find("picture", name, by_name), selected)
    view = _by_name(_chosen(result, selected))[name]
    if view.rank is not None and len(selected.get("r", ())) > 1:
        choice = " or ".join(f"ranks={r}" for r in selected["r"])
        raise InvalidArgumentError(
            f"the picture {name} draws a single rank, here r = {view.rank}; write {choice}"
        )
    figure = draw_as_asked(name, partial(view.draw, ax=ax), asked, ax)
    with nullcontext() if ax is not None else beside_users_style():
        _set_title(figure, ax, title)
    if isinstance(figure, Picture) and ax is None:
        figure.caption = f"{view.title}. {figure.caption}".strip()
        figure.fit()
        if figsize is not None:
            refuse_small_panels(name, figure)
    return figure


def _set_title(figure: Figure, ax: Axes | None, title: str | None) -> None:
    """Set the title of the only panel, or of the figure."""
    if title is not None:
        panels = [ax] if ax is not None else figure.axes
        # A headline above the panels takes the place of the title.
        if len(panels) == 1 and (ax is not None or not figure.get_suptitle()):
            panels[0].set_title(title)
        else:
            figure.suptitle(title, **HEADLINE)


def _by_name(result: Result) -> dict[str, NamedPicture]:
    """The pictures of a result by their names, of which there must be some."""
    by_name = {picture.name: picture for picture in pictures_of(result)}
    if not by_name:
        raise InvalidArgumentError(f"result has no rows, so there is nothing to draw: {result!r}")
    return by_name


def _selection(methods: Any, ranks: Any) -> dict[str, tuple[Any, ...]]:
    """The values of the columns ``method`` and ``r`` to draw, as far as the user chose some."""
    selected: dict[str, tuple[Any, ...]] = {}
    if methods is not None:
        selected["method"] = tuple(map(known_name, as_tuple(methods)))
    if ranks is not None:
        selected["r"] = as_tuple(ranks) and checked_ranks(ranks)
    for column, values in selected.items():
        if not values:
            argument = _ARGUMENTS[column]
            raise InvalidArgumentError(
                f"{argument} is empty; name those to draw, or leave {argument} out"
            )
    return selected


def _check_selection(view: NamedPicture, selected: Iterable[str]) -> None:
    """Refuse a selection that the picture does not follow."""
    for argument in map(_ARGUMENTS.__getitem__, selected):
        if argument not in view.selects:
            raise InvalidArgumentError(
                f"the picture {view.name} draws no {argument}; leave {argument} out"
            )


def caption_of(result: Result) -> str:
    """The caption of the first picture of a result; "" if it has none."""
    figure = plot(result) if result.command in PICTURES and picture_names(result) else None
    return figure.caption if isinstance(figure, Picture) else ""


def picture_names(result: Result) -> tuple[str, ...]:
    """Names of the pictures of a result; none if results of this type cannot be drawn."""
    return (
        tuple(picture.name for picture in pictures_of(result)) if result.command in PICTURES else ()
    )


def _chosen(result: Result, selected: Mapping[str, tuple[Any, ...]]) -> Result:
    """The result with the rows of the selected methods and ranks only."""
    for column, values in selected.items():
        # The column "method" of a table without ranks names something else, such as coders.
        tables = {
            name: rows
            for name, rows in vars(result).items()
            if isinstance(rows, tuple) and rows and hasattr(rows[0], "r")
            if hasattr(rows[0], column)
        }
        present = dict.fromkeys(getattr(row, column) for rows in tables.values() for row in rows)
        titles = {str(value): value for value in present}
        for value in values:
            find("rank" if column == "r" else column, str(value), titles)
        filtered = {
            name: tuple(row for row in rows if getattr(row, column) in values)
            for name, rows in tables.items()
        }
        result = replace(result, **filtered)
    return result


def pictures_of(result: Result) -> list[NamedPicture]:
    """List the pictures of a result, the most informative first; none if it has no rows."""
    _check_type(result)
    if result.to_frame().empty:
        return []
    _, _, module = PICTURES[result.command]
    drawing: Any = import_module(f"loca_theory.plotting.results.{module}")
    return drawing.pictures_of(result)


def _check_type(result: object) -> None:
    """Refuse results of a type that cannot be drawn."""
    if not isinstance(result, Result) or result.command not in PICTURES:
        kinds = ", ".join(kind for kind, _, _ in PICTURES.values())
        raise InvalidArgumentError(
            f"{type(result).__name__} cannot be drawn; result must be one of {kinds}"
        )


def save_pictures(result: Result, folder: str | Path) -> list[Path]:
    """Write every picture of a result as PNG and PDF, and name the files after its command."""
    pictures, written = pictures_of(result), []
    for view in pictures:
        name = f"{result.command}-{view.name}" if len(pictures) > 1 else result.command
        written += save_figure(view.draw(), folder, name)
    return written

"""Panels in a new figure or the caller's axes, and saving of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.plotting.options import Options, UnfitOptionError, drawn_with, set_scales
from loca_theory.plotting.styled_figure import KINDS, STYLE, Picture, beside_users_style, metadata
from loca_theory.plotting.styled_figure import styled as styled
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = ("blue", "red", "green", "pink", "sky", "orange", "grey", "black")
NAMED_COLORS = dict(zip(_NAMES, STYLE["axes.prop_cycle"].by_key()["color"], strict=True))
BLUE, RED, GREEN, PINK, SKY, ORANGE, GREY, BLACK = NAMED_COLORS.values()
# Colours of groups that are not methods.
COLORS = (BLUE, RED, GREEN, PINK, SKY, ORANGE, BLACK)
_MARKERS = "os^DvPX"
# Panels are at least this wide and tall if the user chose the size, in inches.
_SMALLEST_PANEL = 0.5
# How sizes grow until panels are large enough, and to which length, in inches.
_STEP, _LARGEST = 0.25, 50
# How a title of several panels is written.
HEADLINE: dict[str, Any] = {"x": 0.01, "ha": "left"}


def mark(k: int) -> tuple[str, str]:
    """Colour and marker of the k-th group; of 49 groups, no two share both."""
    return COLORS[k % len(COLORS)], _MARKERS[(k + k // len(COLORS)) % len(_MARKERS)]


@dataclass(frozen=True)
class NamedPicture:
    """One picture that can be drawn of a result, which has no other of this name."""

    name: str
    title: str
    draw: Callable[..., Figure]  # its argument ``ax`` is the user's axes, or None
    selects: tuple[str, ...] = ()  # those of ``methods`` and ``ranks`` that select what it draws
    rank: int | None = None  # the rank that it draws, if it draws a single one


def draw_as_asked(
    name: str, draw: Callable[[], Figure], chosen: Options, ax: Axes | None = None
) -> Figure:
    """Draw a picture with the user's options; refuse those that it does not follow."""
    with drawn_with(chosen):
        figure = draw()
        for axis in (ax,) if ax is not None else figure.axes:
            if chosen.log and axis.images:
                raise UnfitOptionError(
                    f'log="{chosen.log}" does not fit the picture {name}, which shows images'
                )
            set_scales(axis)
    chosen.refuse_unused(name)
    return figure


def refuse_small_panels(name: str, figure: Picture) -> None:
    """Refuse a size of the user's at which panels are too small, and name one that works."""
    asked = tuple(map(float, figure.get_size_inches()))
    smallest = smallest_panel = figure.smallest_panel()
    while min(smallest) < _SMALLEST_PANEL and max(figure.get_size_inches()) < _LARGEST:
        grown = [
            side + _STEP * (panel < _SMALLEST_PANEL)
            for side, panel in zip(figure.get_size_inches(), smallest, strict=True)
        ]
        figure.set_size_inches(*grown)
        figure.fit()
        smallest = figure.smallest_panel()
    if min(smallest_panel) < _SMALLEST_PANEL:
        width, height = figure.get_size_inches()
        raise UnfitOptionError(
            f"panels of the picture {name} would be {smallest_panel[0]:.2g} in wide and "
            f"{smallest_panel[1]:.2g} in tall at figsize={asked}; write "
            f"figsize=({width:g}, {height:g}) or larger"
        )


@dataclass(frozen=True)
class Canvas:
    """The panels of a picture."""

    figure: Figure
    axes: NDArray[Any]  # the panels, by row and column
    is_own: bool  # whether the figure was made for this picture

    @classmethod
    def of(
        cls,
        ax: Axes | None,
        size: tuple[float, float],
        rows: int = 1,
        columns: int = 1,
        **sharing: Any,
    ) -> Canvas:
        """Create a figure with panels, or use the user's axes as the only panel.

        The size is in inches; ``sharing`` goes to :meth:`~matplotlib.figure.Figure.subplots`.
        """
        if ax is None:
            figure = Picture(figsize=size)
            return cls(figure, figure.subplots(rows, columns, squeeze=False, **sharing), True)
        if not isinstance(ax, Axes):
            raise InvalidArgumentError(
                f"ax must be axes of matplotlib, such as plt.subplots()[1], not {ax!r}"
            )
        if rows * columns > 1:
            raise InvalidArgumentError(
                "ax holds a single panel, and this picture has several panels; leave ax out, or "
                "name another picture"
            )
        # ax.figure may be a subfigure; its figure is the whole one.
        return cls(ax.figure.figure, np.array([[ax]]), False)

    @classmethod
    def grid(
        cls,
        ax: Axes | None,
        count: int,
        columns: int,
        panel: tuple[float, float],
        margin: tuple[float, float] = (0.0, 0.0),
        **sharing: Any,
    ) -> Canvas:
        """Create panels of one size, at most ``columns`` in a row, or use the user's axes.

        ``margin`` is what the figure has beside and below the panels, in inches.
        """
        columns = min(columns, count)
        rows = -(-count // columns)
        size = (panel[0] * columns + margin[0], panel[1] * rows + margin[1])
        canvas = cls.of(ax, size, rows, columns, **sharing)
        for axis in canvas.axes.flat[count:]:
            axis.set_visible(False)
        if rows > 1:  # panels that share an axis have hidden its numbers above the last row
            for axis in canvas.axes.flat[count - columns : count]:
                axis.tick_params(labelbottom=True)
        return canvas

    def label(self, x: str, y: str) -> None:
        """Label the x axis of the lowest panel of each column, and the y axis of each row."""
        for column in self.axes.T:
            shown = [axis for axis in column if axis.get_visible()] or column
            shown[-1].set_xlabel(x)
        for axis in self.axes[:, 0]:
            axis.set_ylabel(y)

    def headline(self, text: str) -> None:
        """Write what the picture shows above the panels, but not in the user's own figure."""
        if self.is_own:
            self.figure.suptitle(text, **HEADLINE)

    def caption(self, text: str, **_: Any) -> None:
        """Store what belongs below the picture."""
        if isinstance(self.figure, Picture):
            self.figure.caption = text

    def legend(self, ncols: int, fontsize: float | str | None = None) -> None:
        """Add the legend of the first panel below the panels, or inside the user's axes."""
        handles, labels = self.axes[0, 0].get_legend_handles_labels()
        if self.is_own:
            self.figure.legend(
                handles, labels, loc="outside lower center", ncols=ncols, fontsize=fontsize
            )
        else:
            self.axes[0, 0].legend(handles, labels, fontsize=fontsize)


def save_figure(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write a figure as ``name.png`` and ``name.pdf``, the same bytes for the same data."""
    folder = writable_folder(_arguments.path("folder", folder))
    paths = [folder / f"{name}.{kind}" for kind in KINDS]
    engine, dpi = figure.get_layout_engine(), figure.dpi
    # Both files show one layout; without an engine, matplotlib draws once per file.
    with beside_users_style(), rc_context({"figure.constrained_layout.use": False}):
        figure.set_dpi(rcParams["savefig.dpi"])
        figure.draw_without_rendering()
        figure.set_layout_engine(None)
        try:
            for path, kind in zip(paths, KINDS, strict=True):
                save = partial(figure.savefig, format=kind, metadata=metadata(kind, figure))
                write_atomically(path, save)
        finally:
            figure.set_dpi(dpi)
            figure.set_layout_engine(engine)
    return paths

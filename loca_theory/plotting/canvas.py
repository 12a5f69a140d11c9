"""New figures in the package's style or the caller's axes to draw into, and saving of figures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, wraps
from importlib.resources import as_file, files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from matplotlib import rc_context, rc_params_from_file, rcParams
from matplotlib import style as styles
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loca_theory import _arguments
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Without dates and program names the same data gives the same bytes.
_METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}

with as_file(files("loca_theory.plotting") / "loca.mplstyle") as _path:
    _STYLE: dict[str, Any] = {**rc_params_from_file(_path, use_default_template=False)}
BLUE, RED, GREEN, PINK, SKY, ORANGE, GREY, BLACK = _STYLE["axes.prop_cycle"].by_key()["color"]
# Colours of groups that are not methods.
COLORS = (BLUE, RED, GREEN, PINK, SKY, ORANGE, BLACK)

_Given = ParamSpec("_Given")


def in_style() -> AbstractContextManager[None]:
    """Draw in the package's style, independently of the user's own settings."""
    # after_reset drops the user's settings, so the same data gives the same picture everywhere.
    return styles.context(_STYLE, after_reset=True)


def styled(draw: Callable[_Given, Figure]) -> Callable[_Given, Figure]:
    """Make a function draw in the package's style unless it draws into the caller's ``ax``."""

    @wraps(draw)
    def drawn(*args: _Given.args, **kwargs: _Given.kwargs) -> Figure:
        with in_style() if kwargs.get("ax") is None else nullcontext():
            return draw(*args, **kwargs)

    return drawn


class Picture(Figure):
    """A matplotlib figure in the package's style; notebooks show it without pyplot."""

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Save the figure in the package's style."""
        with in_style():
            super().savefig(fname, **kwargs)

    def _repr_png_(self) -> bytes:
        return png(self)


@dataclass(frozen=True)
class NamedPicture:
    """One picture that can be drawn of a result, which has no other of this name."""

    name: str
    title: str
    draw: Callable[..., Figure]  # its argument ``ax`` is the user's axes, or None


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
            msg = f"ax must be axes of matplotlib, such as plt.subplots()[1], not {ax!r}"
            raise InvalidArgumentError(msg)
        if rows * columns > 1:
            msg = "ax holds a single panel, and this picture has several panels; leave ax out, or "
            msg += "name another picture"
            raise InvalidArgumentError(msg)
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
        """Create so many panels of one size, at most ``columns`` in a row, or use the user's axes.

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
            self.figure.suptitle(text, x=0.01, ha="left", weight="bold", fontsize=10)

    def caption(self, text: str, **look: Any) -> None:
        """Write a caption below the panels, but not in the user's own figure."""
        if self.is_own:
            self.figure.supxlabel(text, fontsize=7, color="#444444", **look)

    def legend(self, ncols: int, fontsize: float | None = None) -> None:
        """Add the legend of the first panel below the panels, or inside the user's axes."""
        handles, labels = self.axes[0, 0].get_legend_handles_labels()
        if self.is_own:
            self.figure.legend(
                handles, labels, loc="outside lower center", ncols=ncols, fontsize=fontsize
            )
        else:
            self.axes[0, 0].legend(handles, labels, fontsize=fontsize)


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    content = BytesIO()
    figure.savefig(content, format="png", metadata=_METADATA["png"])
    return content.getvalue()


def save_figure(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Write a figure as ``name.png`` and ``name.pdf``, the same bytes for the same data."""
    folder = writable_folder(_arguments.path("folder", folder))
    paths = [folder / f"{name}.{kind}" for kind in _METADATA]
    engine, dpi = figure.get_layout_engine(), figure.dpi
    # Both files show one layout; without an engine, matplotlib draws once per file.
    with in_style(), rc_context({"figure.constrained_layout.use": False}):
        figure.set_dpi(rcParams["savefig.dpi"])
        figure.draw_without_rendering()
        box = figure.get_tightbbox().padded(rcParams["savefig.pad_inches"])
        figure.set_layout_engine(None)
        try:
            for path, (kind, metadata) in zip(paths, _METADATA.items(), strict=True):
                save = partial(figure.savefig, format=kind, metadata=metadata, bbox_inches=box)
                write_atomically(path, save)
        finally:
            figure.set_dpi(dpi)
            figure.set_layout_engine(engine)
    return paths

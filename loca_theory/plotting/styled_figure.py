"""The package's matplotlib style, and figures that keep the user's size and wrap long titles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from importlib.resources import as_file, files
from io import BytesIO
from typing import TYPE_CHECKING, Any, ParamSpec

from matplotlib import rc_context, rc_params_from_file, rcParams, rcParamsDefault
from matplotlib import style as styles
from matplotlib.figure import Figure

from loca_theory.plotting.options import options

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.legend import Legend
    from matplotlib.text import Text

# Without dates and program names the same data gives the same bytes.
_METADATA = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
# Where a file has its caption.
_CAPTION = {"png": "Description", "pdf": "Subject"}
KINDS = tuple(_METADATA)
"""The formats in which pictures are stored."""
# Distance of a title from the next panel or from the edge, in points.
_GAP = 5
# The label of a vertical axis may be longer than the axis by this factor.
_TALLEST = 1.15

with as_file(files("loca_theory.plotting") / "loca.mplstyle") as _path:
    STYLE: dict[Any, Any] = {**rc_params_from_file(_path, use_default_template=False)}

_Arguments = ParamSpec("_Arguments")


def in_style() -> AbstractContextManager[None]:
    """Draw in the package's style alone, so that the same data gives the same picture."""
    return styles.context(STYLE, after_reset=True)


def beside_users_style() -> AbstractContextManager[None]:
    """Draw in the package's style, but keep rcParams that the user has changed."""
    return rc_context({k: v for k, v in STYLE.items() if rcParams[k] == rcParamsDefault[k]})


def styled(draw: Callable[_Arguments, Figure]) -> Callable[_Arguments, Figure]:
    """Make a function draw as :func:`beside_users_style`, unless it draws into a given ``ax``."""

    @wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Figure:
        if kwargs.get("ax") is not None:
            return draw(*args, **kwargs)
        with beside_users_style():
            figure = draw(*args, **kwargs)
            if isinstance(figure, Picture):
                figure.fit()
            return figure

    return drawn


class Picture(Figure):
    """A matplotlib figure that notebooks show without pyplot.

    It is saved in the style in which it was made, and ``figsize`` is the size of the file.

    Attributes:
        caption: What belongs below the picture: what its lines are, and how they were computed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As matplotlib's figure, of the size that the user asked for."""
        if options().figsize is not None:
            kwargs["figsize"] = options().figsize
        super().__init__(*args, **kwargs)
        self.caption = ""
        self._is_collapsed = False  # whether the figure is too small for its labels alone
        # Texts before and after they were wrapped.
        self._wrapped: dict[Text, tuple[str, str]] = {}
        self._style = {key: rcParams[key] for key in STYLE}
        self._outside: list[tuple[Legend, tuple[Any, ...], dict[str, Any]]] = []

    def savefig(self, fname: Any, **kwargs: Any) -> None:
        """Save the figure in the style in which it was made."""
        with rc_context(self._style):
            super().savefig(fname, **kwargs)

    def draw_without_rendering(self) -> None:
        """Lay the figure out, and note whether its panels have room."""
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "constrained_layout not applied", UserWarning)
            try:
                super().draw_without_rendering()
                self._is_collapsed = False
            except UserWarning as warning:
                if not str(warning).startswith("constrained_layout"):
                    raise
                self._is_collapsed = True

    def legend(self, *args: Any, **kwargs: Any) -> Legend:
        """Add a legend beside the panels, with fewer columns if the figure is too narrow."""
        legend = super().legend(*args, **kwargs)
        self._outside.append((legend, args, kwargs))
        return legend

    def fit(self) -> None:
        """Wrap titles that are wider than their panels, and legends wider than the figure."""
        before = self._wrapped.copy()
        self._fit()
        if self._wrapped != before:  # which changes the room of other texts
            self._fit()

    def _fit(self) -> None:
        for title in (title for axis in self.axes for title in _titles(axis)):
            title.set_in_layout(False)
        self._fit_legends()
        self.draw_without_rendering()
        for axis in self.axes:
            for title in _titles(axis):
                title.set_in_layout(True)
                self._wrap(title, self._room(axis))
        for axis in self.axes:
            for title in _titles(axis):
                self._align(title, [_lines(other) for other in (axis, *self._beside(axis))])
        for axis in self.axes:
            self._wrap(axis.xaxis.label, self._room_below(axis))
            self._wrap(axis.yaxis.label, _TALLEST * axis.bbox.height, across=False)
        if (headline := self._suptitle) is not None:  # pyright: ignore
            self._wrap(headline, self.bbox.width - 2 * _GAP * self.dpi / 72)

    def smallest_panel(self) -> tuple[float, float]:
        """The width of the narrowest panel and the height of the lowest, in inches."""
        self.draw_without_rendering()
        if self._is_collapsed:
            return 0.0, 0.0
        boxes = [axis.bbox for axis in self.axes if axis.get_visible()]
        widths, heights = ([getattr(box, side) for box in boxes] for side in ("width", "height"))
        return min(widths) / self.dpi, min(heights) / self.dpi

    def _wrap(self, text: Text, room: float, *, across: bool = True) -> None:
        """Wrap a text anew, from what it was before it was wrapped for another width."""
        original, wrapped = self._wrapped.get(text, ("", None))
        if text.get_text() != wrapped:
            original = text.get_text()
        text.set_text(original)
        _wrap_to(text, room, across=across)
        if text.get_text() != original:
            self._wrapped[text] = original, text.get_text()

    def _align(self, title: Text, lines: list[int]) -> None:
        """Begin a title at the height of the longest one in its row."""
        text = title.get_text()
        padded = text + "\n" * (max(lines) - text.count("\n"))
        if padded != text:
            original, _ = self._wrapped.get(title, (text, ""))
            title.set_text(padded)
            self._wrapped[title] = original, padded

    def _fit_legends(self) -> None:
        if self._outside:
            self.draw_without_rendering()
        for k, (legend, args, kwargs) in enumerate(self._outside):
            columns, fitted = kwargs.get("ncols", 1), legend
            while columns > 1 and fitted.get_window_extent().width > self.bbox.width:
                columns -= 1
                fitted.remove()
                fitted = super().legend(*args, **{**kwargs, "ncols": columns})
                self.draw_without_rendering()
            self._outside[k] = fitted, args, {**kwargs, "ncols": columns}

    def _beside(self, axis: Axes) -> list[Axes]:
        """The other panels in the row of a panel."""
        box = axis.bbox
        return [
            other
            for other in self.axes
            if other is not axis and other.bbox.y0 < box.y1 and other.bbox.y1 > box.y0
        ]

    def _room(self, axis: Axes) -> float:
        """The pixels from the left end of a panel to the next panel, or to the figure's edge."""
        starts = [other.bbox.x0 for other in self._beside(axis) if other.bbox.x0 > axis.bbox.x0]
        return min([self.bbox.width, *starts]) - axis.bbox.x0 - _GAP * self.dpi / 72

    def _room_below(self, axis: Axes) -> float:
        """The pixels across, about the middle of a panel, that its label may take."""
        if any(other.get_xlabel() for other in self._beside(axis)):
            return axis.bbox.width
        middle = (axis.bbox.x0 + axis.bbox.x1) / 2
        return 2 * (min(middle, self.bbox.width - middle) - _GAP * self.dpi / 72)

    def _repr_png_(self) -> bytes:
        return png(self)


def _titles(axis: Axes) -> list[Text]:
    """The titles of a panel that are not empty."""
    titles = axis.title, axis._left_title, axis._right_title  # pyright: ignore
    return [title for title in titles if title.get_text()]


def _lines(axis: Axes) -> int:
    """Line breaks in the longest title of a panel."""
    return max((title.get_text().count("\n") for title in _titles(axis)), default=0)


def _wrap_to(text: Text, room: float, *, across: bool = True) -> None:
    """Break a text, written across or upwards, into lines of at most ``room`` pixels."""

    def length() -> float:
        extent = text.get_window_extent()
        return extent.width if across else extent.height

    lines: list[str] = []
    for paragraph in text.get_text().split("\n"):
        text.set_text(paragraph)
        if length() <= room:
            lines.append(paragraph)
            continue
        lines.append("")
        for word in paragraph.split():
            text.set_text(f"{lines[-1]} {word}".strip())
            if lines[-1] and length() > room:
                lines.append(word)
            else:
                lines[-1] = text.get_text()
    text.set_text("\n".join(lines))


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    content = BytesIO()
    figure.savefig(content, format="png", metadata=metadata("png", figure))
    return content.getvalue()


def metadata(kind: str, figure: Figure) -> dict[str, str | None]:
    """The metadata of a file: the caption, and nothing that differs between two runs."""
    caption = figure.caption if isinstance(figure, Picture) else ""
    return {**_METADATA[kind], **({_CAPTION[kind]: caption} if caption else {})}

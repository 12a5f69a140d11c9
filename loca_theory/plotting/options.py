"""The user's options of a picture: its size, colours, labels and scales.

They are set while a picture is drawn, as matplotlib's parameters are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from matplotlib import rcParams
from matplotlib.cbook import is_math_text
from matplotlib.colors import is_color_like
from matplotlib.mathtext import MathTextParser
from matplotlib.ticker import LogFormatter

from loca_theory._lookup import unknown_name
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.methods.names import known_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The least and the greatest width and height of a figure, in inches.
_LEAST, _GREATEST = 1, 50


class UnfitOptionError(InvalidArgumentError):
    """A picture cannot follow an option."""


@dataclass(frozen=True)
class Options:
    """The user's options of a picture.

    Attributes:
        figsize: Width and height of a new figure, in inches; None for the picture's usual size.
        colors: Colours of lines, by the name of the method or search.
        labels: Texts of labels and legends, by the same names.
        log: The axes that are logarithmic: ``x``, ``y``, ``xy`` or "".
        drawn: The names that the picture has drawn, by the option that could change them.
    """

    figsize: tuple[float, float] | None = None
    colors: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    drawn: dict[str, set[str]] = field(default_factory=lambda: {"colors": set(), "labels": set()})

    @classmethod
    def checked(
        cls, figsize: Any, colors: Any = None, labels: Any = None, log: Any = ""
    ) -> Options:
        """The options that a user wrote; what matplotlib would refuse later is refused."""
        colors, labels = _by_name("colors", colors), _by_name("labels", labels)
        for name, color in colors.items():
            if not is_color_like(color):
                raise InvalidArgumentError(
                    f"colors has {color!r} for {name}, which matplotlib does not know; write a "
                    'name such as "tab:blue" or "#1f77b4"'
                )
        for name, label in labels.items():
            check_text(f"labels for {name}", label)
        if log not in ("", "x", "y", "xy"):
            raise InvalidArgumentError(f'log must be "x", "y" or "xy", not {log!r}')
        return cls(_size(figsize), colors, labels, log)

    def label(self, name: str) -> str:
        """The text that stands for a method or search."""
        self.drawn["labels"].add(name)
        return self.labels.get(name, name)

    def color(self, name: str, usual: str) -> str:
        """The colour of a method or search, which usually has another."""
        self.drawn["colors"].add(name)
        return self.colors.get(name, usual)

    def refuse_unused(self, picture: str) -> None:
        """Refuse colours and labels of what the picture does not draw."""
        for argument, values in (("colors", self.colors), ("labels", self.labels)):
            names = self.drawn[argument]
            if values and not names:
                draws = "colours no method" if any(self.drawn.values()) else "draws no methods"
                raise UnfitOptionError(f"the picture {picture} {draws}; leave {argument} out")
            for name in values:
                if name not in names:
                    raise UnfitOptionError(unknown_name(f"name in {argument}", name, sorted(names)))


def check_text(argument: str, text: object) -> None:
    """Refuse what is not a text, and formulas that matplotlib cannot read."""
    if not isinstance(text, str):
        raise InvalidArgumentError(f"{argument} must be a text, not {text!r}")
    if is_math_text(text) and not rcParams["text.usetex"]:
        try:
            MathTextParser("path").parse(text)
        except ValueError:
            raise InvalidArgumentError(
                f"{argument} has a formula that matplotlib cannot read: {text!r}; mend it, or "
                r"write \$ for a dollar sign"
            ) from None


def _size(figsize: Any) -> tuple[float, float] | None:
    """Width and height of a figure."""
    if figsize is None:
        return None
    width = height = math.nan
    try:
        if not isinstance(figsize, str):
            width, height = map(float, figsize)
    except (TypeError, ValueError):
        pass
    if not (_LEAST <= width <= _GREATEST and _LEAST <= height <= _GREATEST):
        raise InvalidArgumentError(
            f"figsize is in inches: a width and a height from {_LEAST} to {_GREATEST}, such as "
            f"(3.25, 2.4), not {figsize!r}"
        )
    return width, height


def _by_name(argument: str, values: Any) -> dict[str, Any]:
    """Values by the names of methods or searches."""
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        example = '{"LoRA": "tab:blue"}' if argument == "colors" else '{"LoRA": "low rank"}'
        raise InvalidArgumentError(
            f"{argument} must be a mapping such as {example}, not {values!r}"
        )
    return {str(known_name(name)): value for name, value in values.items()}


_OPTIONS: ContextVar[Options | None] = ContextVar("options", default=None)


def options() -> Options:
    """The options of the picture that is being drawn."""
    return _OPTIONS.get() or Options()


@contextmanager
def drawn_with(chosen: Options) -> Iterator[None]:
    """Draw with these options."""
    token = _OPTIONS.set(chosen)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


class _PlainNumbers(LogFormatter):
    """Numbers such as 0.5 instead of 5e-01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The text of a tick; "" for one that is not labelled."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def set_scales(axis: Axes) -> None:
    """Make those axes logarithmic that the user wants to be."""
    for name, line in (("x", axis.xaxis), ("y", axis.yaxis)):
        if name in options().log:
            axis.set(**{f"{name}scale": "log"})
            for set_formatter in (line.set_major_formatter, line.set_minor_formatter):
                set_formatter(_PlainNumbers(minor_thresholds=(2, 0.5)))

"""The user's options of a picture: its size, colours, labels and scales.

They are set while :func:`~loca_theory.plotting.plot` draws, as matplotlib's parameters are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Options:
    """The user's options of a picture.

    Attributes:
        figsize: Width and height of a new figure, in inches; None for the picture's usual size.
        colors: Colours of lines, by the name of the method or search.
        labels: Texts of labels and legends, by the same names.
        log: The axes that are logarithmic: ``x``, ``y``, ``xy`` or "".
    """

    figsize: tuple[float, float] | None = None
    colors: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    log: str = ""

    def label(self, name: str) -> str:
        """The text that stands for a method or search."""
        return self.labels.get(name, name)


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

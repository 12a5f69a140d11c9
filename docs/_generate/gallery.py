"""The gallery: every stored figure, what it shows, and what draws it from stored data.

The figures are those of :data:`loca_theory.plotting.FIGURES`, and the pictures of results that are
stored beside them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path

from PIL import Image

import loca_theory as loca
from loca_theory.plotting import FIGURES
from loca_theory.plotting.looks import TITLES, key
from loca_theory.plotting.paper_figure import Computed, PaperFigure
from loca_theory.plotting.pictures import pictures_of

ROOT = Path(__file__).parents[2]
FOLDER = "figures"


def page(figures: Mapping[str, PaperFigure], root: Path) -> str:
    """Return the Markdown of all figures.

    Args:
        figures: The figures of the paper, by label.
        root: The folder that holds ``figures``.

    Raises:
        ValueError: two pictures have one name, or nothing is known to draw a picture.
    """
    pictures = stored_pictures(root)
    lines: list[str] = []
    for label, figure in figures.items():
        lines += _section(label, figure.title, figure.shows, pictures.pop(label, None), root)
        lines += _data(figure)
        if figure.in_paper:
            lines += [f"In the paper: {figure.in_paper}.", ""]
    lines += ["## Pictures of results", "", "`plot` draws these from any result of their kind.", ""]
    for name, path in pictures.items():
        lines += _result_picture(name, path, root)
    return "\n".join(lines)


def stored_pictures(root: Path) -> dict[str, Path]:
    """Return the pictures below ``figures``, relative to the root, by the names of their files.

    Raises:
        ValueError: two pictures have one name.
    """
    found: dict[str, Path] = {}
    for path in sorted((root / FOLDER).rglob("*.png")):
        if path.stem in found:
            msg = f"{path} and {found[path.stem]} have the same name; rename one"
            raise ValueError(msg)
        found[path.stem] = path.relative_to(root)
    return found


def _section(name: str, title: str, shows: str, picture: Path | None, root: Path) -> Iterator[str]:
    """The section of a figure, with the caption that its file has."""
    yield from (f"### {title}", "")
    if picture is None:
        yield from (f"`{name}`: {shows}.", "", "*Not drawn yet: its data are not stored.*", "")
        return
    with Image.open(root / picture) as image:
        caption = _without_titles(image.info.get("Description") or f"{shows}.")
    yield from (f"![{name}](../{picture.as_posix()})", "", f"`{name}`: {caption}", "")


def _without_titles(caption: str) -> str:
    """A caption without the sentence of methods' titles, which the page on methods has."""
    titles = {key([name], TITLES).removesuffix(".") for name in TITLES}
    sentences = caption.removesuffix(".").split(". ")
    return ". ".join(text for text in sentences if not titles & {*text.split("; ")}) + "."


def _data(figure: PaperFigure) -> Iterator[str]:
    if not isinstance(figure.data, Computed):
        commands = list(dict.fromkeys(figure.data.values()))
        yield from (f"Data: {', '.join(f'`{one}`' for one in commands)}.", "")


def _result_picture(name: str, path: Path, root: Path) -> Iterator[str]:
    folder = path.parent.as_posix()
    for kind in _results():
        view_name = name.removeprefix(f"{kind.command}-")
        if view_name == name:
            continue
        (view,) = [one for one in pictures_of(kind.load(root / folder)) if one.name == view_name]
        call = f'loca.plot(loca.{kind.__name__}.load("{folder}"), "{view_name}")'
        yield from _section(name, view.title, view.title, path, root)
        yield from (f"`{call}`", "")
        return
    msg = f"{path} is neither a figure of FIGURES nor a picture of a result; delete it"
    raise ValueError(msg)


def _results() -> list[type[loca.Result]]:
    kinds = (getattr(loca, name) for name in loca.__all__)
    return [
        kind
        for kind in kinds
        if inspect.isclass(kind) and issubclass(kind, loca.Result) and kind is not loca.Result
    ]


def gallery() -> Iterator[str]:
    """All figures."""
    yield page(FIGURES, ROOT)

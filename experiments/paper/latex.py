"""A parser of LaTeX tables, sufficient for the tables of the paper.

It supports comments, nested tabulars (line breaks in a cell), ``multicolumn``, ``multirow``, rules,
and markup, which is stripped to its text. Macros of the document itself are not expanded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from loca_theory.errors import InvalidArgumentError

Number = Decimal | str | tuple[Decimal | str, ...] | None

# Commands whose first arguments are not text, and how many of these to drop.
_DROPPED = {"multirow": 2, "rotatebox": 1, "textcolor": 1, "multicolumn": 2, "vspace": 1}
_SYMBOLS = {"pm": "±", "dagger": "†", "ddagger": "‡", "log": "log ", "alpha": "alpha "}
_RULES = re.compile(r"\\(midrule|hline)\b|\\(?:toprule|bottomrule)\b")
_PARTIAL = re.compile(r"\\(?:cmidrule|cline)\s*(?:\([^)]*\))?\s*\{[^}]*\}")
_NUMBER = re.compile(
    r"([+-]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([KMB]?)"
)
_SCALE = {"": Decimal(1), "K": Decimal(10) ** 3, "M": Decimal(10) ** 6, "B": Decimal(10) ** 9}


@dataclass(frozen=True)
class Cell:
    """A printed cell.

    Attributes:
        text: Its text without markup.
        value: The number or numbers, else the text; None for ``-`` and an empty cell.
        spread: The number after ±; None if there is no ±.
    """

    text: str
    value: Number
    spread: Decimal | None = None


@dataclass(frozen=True)
class Line:
    """One line of the body: the number of its block between rules, and its cells."""

    block: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    """A printed table: the heading of each column, joined from the top, and the lines below."""

    headings: tuple[str, ...]
    lines: tuple[Line, ...]


def key(text: str) -> str:
    """Letters and digits of a heading in lower case, for matching headings."""
    return re.sub(r"[\W_]+", "", text).casefold()


def read_number(text: str) -> Decimal | None:
    """A printed number such as ``3,828``, ``1e-4``, ``.07`` or ``0.3M``; None for anything else."""
    found = _NUMBER.fullmatch(text.strip())
    if not found:
        return None
    return Decimal(found[1].replace(",", "")) * _SCALE[found[2]]


def read_cell(text: str) -> Cell:
    """The number, numbers or text of a cell without markup."""
    printed, plus_minus, after = (part.strip() for part in text.partition("±"))
    spread = read_number(after)
    if plus_minus and spread is None:
        return Cell(text, text)
    if printed in ("", "-", "--"):
        return Cell(text, None)
    # Within braces a comma separates numbers; outside it separates thousands.
    braced = printed.startswith("{")
    parts = printed.strip("{}").split(",") if braced else printed.split(" and ")
    numbers = tuple(read_number(part) for part in parts)
    found = tuple(number for number in numbers if number is not None)
    value: Number = printed
    if len(found) == len(numbers):
        value = found if braced or len(found) > 1 else next(iter(found))
    return Cell(text, value, spread)


def uncommented(source: str) -> str:
    """The source without comments."""
    return re.sub(r"(?<!\\)((?:\\\\)*)%.*", r"\1", source)


def grid(source: str, label: str) -> Grid | None:
    """The table with a label.

    Args:
        source: LaTeX without comments.
        label: Label of the table.

    Returns:
        The table, or None if nothing has the label.

    Raises:
        InvalidArgumentError: The label is not that of a table, or braces do not match.
    """
    at = source.find(f"\\label{{{label}}}")
    if at < 0:
        return None
    opened = [*re.finditer(r"\\begin\{((?:\w*table)\*?)\}", source[:at])]
    close = source.find(f"\\end{{{opened[-1][1]}}}", opened[-1].end()) if opened else -1
    start = source.find("\\begin{tabular}", opened[-1].end(), close) if close > at else -1
    if start < 0:
        msg = f"{label} is not the label of a tabular"
        raise InvalidArgumentError(msg)
    return _lines(_flat(_tabular(source, start)[0]))


def plain(source: str) -> str:
    """The text of a piece of LaTeX without markup and repeated spaces."""
    text = source.replace("\\{", "\x01").replace("\\}", "\x02").replace("~", " ")
    text = re.sub(r"\\([%&$#_])", r"\1", text).replace("$", "")
    while found := re.search(r"\\([A-Za-z]+)\*?\s*(?:\[[^\]]*\])?", text):
        at = found.end()
        for _ in range(_DROPPED.get(found[1], 0)):
            at = _group(text, at)[1]
        text = text[: found.start()] + _SYMBOLS.get(found[1], "") + text[at:]
    text = re.sub(r"[{}]|\\[,;:! ]", "", text).replace("\x01", "{").replace("\x02", "}")
    return " ".join(text.split())


def _group(text: str, at: int) -> tuple[str, int]:
    """The content of the first braces that open at or after a position, and where they end."""
    start = depth = 0
    for i in range(at, len(text)):
        if text[i] in "{}" and text[i - 1 : i] != "\\":
            depth += 1 if text[i] == "{" else -1
            if depth == 1 and text[i] == "{":
                start = i + 1
            elif depth == 0:
                return text[start:i], i + 1
            elif depth < 0:
                break
    msg = f"braces do not match near {' '.join(text[at : at + 40].split())!r}"
    raise InvalidArgumentError(msg)


def _tabular(source: str, start: int) -> tuple[str, int]:
    """The body of the tabular that begins at a position, and where it ends."""
    depth = 0
    for found in re.finditer(r"\\(begin|end)\{tabular\}(?:\[\w*\])?", source[start:]):
        depth += 1 if found[1] == "begin" else -1
        if depth == 0:
            first = source.index("}", start) + 1
            body = _group(source, first)[1]
            return source[body : start + found.start()], start + found.end()
    msg = "a tabular does not end"
    raise InvalidArgumentError(msg)


def _flat(body: str) -> str:
    """The body with each nested tabular, which breaks a line in a cell, joined to one line."""
    while (at := body.find("\\begin{tabular}")) >= 0:
        inner, end = _tabular(body, at)
        body = body[:at] + "{" + re.sub(r"\\\\", " ", _flat(inner)) + "}" + body[end:]
    return body


def _lines(body: str) -> Grid:
    head: list[list[str]] = []
    lines: list[Line] = []
    block = 0
    for printed in re.split(r"\\\\(?:\[[^\]]*\])?", body):
        content = _PARTIAL.sub("", printed)
        # A rule above the heading does not start a block.
        block += bool(head) and any(found[1] for found in _RULES.finditer(content))
        content = _RULES.sub("", content)
        if not content.strip():
            continue
        texts = _cells(content)
        if block == 0:
            head.append(texts)
        else:
            lines.append(Line(block, tuple(read_cell(text) for text in texts)))
    width = max((len(texts) for texts in head), default=0)
    columns = ([texts[i] for texts in head if i < len(texts)] for i in range(width))
    headings = tuple(" ".join(text for text in column if text) for column in columns)
    return Grid(headings, tuple(lines))


def _cells(content: str) -> list[str]:
    """The texts of a line's cells; a cell that spans several columns is repeated for each."""
    texts: list[str] = []
    for part in re.split(r"(?<!\\)&", content):
        spans = re.match(r"\s*\\multicolumn\s*\{(\d+)\}", part)
        texts += [plain(part)] * (int(spans[1]) if spans else 1)
    return texts

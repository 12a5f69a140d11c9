"""Options of a command from the Python function behind it: names, types, defaults and texts.

The function is read as text, so that ``--help`` imports nothing that computes.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import click

from loca_theory.cli.ranges import IntegerList, NumberList, names, parsed_shape, parsed_size

_PACKAGE = Path(__file__).parents[1]
# Parts of an annotation without None, and its type; the first part that fits counts.
_TYPES: tuple[tuple[str, Any], ...] = (
    ("int | Iterable", IntegerList()),
    ("float | Iterable", NumberList()),
    ("Iterable", names),
    ("tuple[int, int]", parsed_shape),
    ("tuple[float, float]", parsed_size),
    ("int | str", click.STRING),
    ("int", click.INT),
    ("float", click.FLOAT),
)


def option_settings(function: str) -> dict[str, dict[str, Any]]:
    """Arguments of :func:`click.option` for each parameter of a function of this package.

    The function is named with its module, such as ``checkpoints.analysis:analyze``.
    """
    module, _, name = function.partition(":")
    path = _PACKAGE.joinpath(*module.split(".")).with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name)
    arguments, texts = node.args, _texts(ast.get_docstring(node) or "")
    constants = {
        statement.targets[0].id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    missing = [None] * (len(arguments.args) - len(arguments.defaults))
    pairs = zip(
        [*arguments.args, *arguments.kwonlyargs],
        [*missing, *arguments.defaults, *arguments.kw_defaults],
        strict=True,
    )
    return {
        parameter.arg: _settings(
            ast.unparse(parameter.annotation) if parameter.annotation else "",
            _literal(constants.get(getattr(default, "id", ""), default)),
            texts.get(parameter.arg, ""),
        )
        for parameter, default in pairs
    }


def _settings(annotation: str, default: Any, text: str) -> dict[str, Any]:
    """Settings of an option, from a type as it is written, a default and a text."""
    if annotation == "bool":
        return {"help": text, "is_flag": True}
    settings = {"help": text, "type": _type(annotation)}
    if default not in (None, ()):
        values = default if isinstance(default, tuple) else (default,)
        settings["default"] = ",".join(map(str, values))
    return settings


def _type(annotation: str) -> Any:
    required = annotation.removesuffix(" | None")
    if required.startswith("Literal["):
        return click.Choice(ast.literal_eval(required.removeprefix("Literal")))
    return next((kind for part, kind in _TYPES if part in annotation), click.STRING)


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _texts(docstring: str) -> dict[str, str]:
    """The text of each entry under ``Args:``, without markup."""
    section = re.search(r"^Args:\n(.*?)(?:\n\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    entries = re.split(r"^    (?=\w)", section[1] if section else "", flags=re.MULTILINE)
    named = (entry.partition(":") for entry in entries if entry)
    texts = {name: plain(" ".join(text.split())) for name, _, text in named}
    # An option that is not given is None in Python.
    default = "; None for ", "; by default "
    return {name: text.replace('"', "").replace(*default) for name, text in texts.items()}


def plain(text: str) -> str:
    """A text of a docstring without markup."""
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text).replace("`", "")

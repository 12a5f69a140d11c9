"""Correct how Sphinx renders some docstrings and help texts."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx

# Run before Napoleon, which has the default priority, 500.
_BEFORE_NAPOLEON = 400
_MARKED = re.compile(r"((?::\w+)*:?`[^`]+`|``.+?``)")


def keep_colons(
    _app: Sphinx, what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Keep a property's docstring such as "Locations of F1: two numbers each" as one sentence.

    Napoleon takes the text before the first colon for the type of an attribute. This function adds
    a leading colon, so that the type is empty.
    """
    if what in ("property", "attribute", "data") and lines:
        lines[0] = f": {lines[0]}"


def keep_bars(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Escape the bars of absolute values, which would otherwise mark a substitution.

    Literals, formulas and texts with directives stay unchanged.
    """
    if any(line.lstrip().startswith(".. ") for line in lines):
        return
    lines[:] = [
        "".join(
            piece if piece.endswith("`") else piece.replace("|", r"\|")
            for piece in _MARKED.split(line)
        )
        for line in lines
    ]


def keep_module(_app: Sphinx, module: str, attribute: str) -> str | None:
    """Assign an alias of a built-in type to the module that names it: built-ins have no source."""
    value: Any = import_module(module)
    for part in attribute.split("."):
        value = getattr(value, part, None)
    return module if getattr(value, "__module__", "") == "builtins" else None


def tidy_fields(_app: Sphinx, document: nodes.document) -> None:
    """Rename Sphinx's heading "Variables" to "Attributes", and replace " -- " by a dash."""
    for field in document.findall(nodes.field_name):
        if field.astext() == "Variables":
            field[:] = [nodes.Text("Attributes")]
    for text in list(document.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" – "))


def show_examples(_app: Sphinx, _context: click.Context, lines: list[str]) -> None:
    r"""Render the examples of a help text, which follow ``\b``, as code."""
    start = next((i for i, line in enumerate(lines) if line.startswith("| Example")), None)
    if start is None:
        return
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    commands = [f"   {line.lstrip('| ')}" for line in lines[start + 1 : end]]
    title = lines[start].removeprefix("| ").strip()
    lines[start:end] = [title, "", ".. code-block:: sh", "", *commands, ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the corrections."""
    app.connect("autodoc-process-docstring", keep_colons, priority=_BEFORE_NAPOLEON)
    app.connect("autodoc-process-docstring", keep_bars, priority=_BEFORE_NAPOLEON)
    app.connect("doctree-read", tidy_fields)
    app.connect("viewcode-follow-imported", keep_module)
    app.connect("sphinx-click-process-description", show_examples)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

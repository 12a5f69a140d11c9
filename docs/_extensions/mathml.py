"""Formulas as MathML, which browsers draw by themselves: without a script, and offline."""

from __future__ import annotations

from typing import Any, NoReturn

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def _inline(writer: HTML5Translator, node: nodes.Element) -> NoReturn:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.Element) -> NoReturn:
    formula = convert(node.astext(), display="block")
    writer.body += [writer.starttag(node, "div", CLASS="math"), formula, "</div>"]
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer`` chooses it."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

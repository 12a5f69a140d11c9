"""Resolve references to a private module path to the public name.

Signatures and docstrings refer to ``loca_theory.expressivity.budgets.Budget``; the reference
documents ``loca_theory.expressivity.Budget``. autodoc identifies the two for classes, but not for
functions and constants.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def resolve(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, content: nodes.TextElement
) -> nodes.reference | None:
    """Return a reference to the public name, or None if there is no such name."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith("loca_theory."):
        return None
    parts = target.split(".")
    python = env.domains.python_domain
    for shorter in (f"loca_theory.{parts[1]}.{parts[-1]}", f"loca_theory.{parts[-1]}"):
        if shorter in python.objects:
            return python.resolve_xref(
                env, node["refdoc"], app.builder, "obj", shorter, _as_object(node), content
            )
    return None


def _as_object(node: nodes.Element) -> Any:
    """Return a copy of the reference that matches objects of any kind."""
    copy = node.copy()
    copy["reftype"] = "obj"
    return copy


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

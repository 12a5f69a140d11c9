"""Resolve references to a private module path to the public name.

Signatures and docstrings refer to ``loca_theory.expressivity.budgets.Budget``; the reference
documents ``loca_theory.expressivity.Budget``. autodoc identifies the two for classes, but not for
functions and constants. Types of signatures that have no public name are shown without a link.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def resolve(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, content: nodes.TextElement
) -> nodes.TextElement | nodes.reference | None:
    """Return a reference to the public name, its text for another type, or None if it is wrong."""
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
    return content if node.get("reftype") == "class" and _is_internal(parts) else None


def _is_internal(parts: list[str]) -> bool:
    """Whether a module of a package, which is not its front door, has the type."""
    return len(parts) > 3 and hasattr(import_module(".".join(parts[:-1])), parts[-1])


def _as_object(node: nodes.Element) -> Any:
    """Return a copy of the reference that matches objects of any kind."""
    copy = node.copy()
    copy["reftype"] = "obj"
    return copy


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

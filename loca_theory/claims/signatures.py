"""Which checks there are and what they take, read from their source.

Importing them takes seconds, for torch; a ledger is to be read, listed and refused in less.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from inspect import Parameter, Signature
from typing import Any


def call_error(check: str, arguments: Mapping[str, Any]) -> str:
    """Why a check cannot be called so; empty if it can.

    Args:
        check: ``module.function`` of :mod:`loca_theory.claims.checks`.
        arguments: What it is given besides the setting, by name.
    """
    module, _, name = check.partition(".")
    known = _signatures(module)
    if name.startswith("_") or name not in known:
        return f"no check {check!r} in loca_theory.claims.checks"
    try:
        known[name].bind(None, **arguments)
    except TypeError as error:
        return f"the check {check} does not take these arguments: {error}"
    return ""


@cache
def _signatures(module: str) -> dict[str, Signature]:
    """Of the functions that a module of checks defines; none where there is no such module."""
    path = files("loca_theory.claims.checks") / f"{module}.py"
    if module.startswith("_") or not path.is_file():
        return {}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {one.name: _signature(one.args) for one in body if isinstance(one, ast.FunctionDef)}


def _signature(given: ast.arguments) -> Signature:
    """Names and whether there is a default: all that binding needs."""
    ordered = [*given.posonlyargs, *given.args]
    first_default = len(ordered) - len(given.defaults)
    parameters = [
        Parameter(one.arg, Parameter.POSITIONAL_OR_KEYWORD, default=_default(i >= first_default))
        for i, one in enumerate(ordered)
    ]
    parameters += [
        Parameter(one.arg, Parameter.KEYWORD_ONLY, default=_default(value is not None))
        for one, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    return Signature(parameters)


def _default(there_is_one: bool) -> Any:
    return None if there_is_one else Parameter.empty

"""The paper's tables as data: hyper-parameters, and results to compare with.

There is one TOML file per table, in ``loca_theory/claims/printed_tables``. At commit 5c3bc85, the
last with a parser of the paper's LaTeX, all 1015 comparisons with it agreed.

A role (model, method or task) that a row omits is ``"*"``: the row holds for all. Numbers are as
printed, but parameters and counts are written out (0.3M is 300000). ``notes`` list what looks
wrong.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from loca_theory.claims.printed import FOLDER
from loca_theory.errors import InvalidArgumentError

Value = int | float | str | tuple[int | float | str, ...]
TABLES = tuple(sorted(path.name.removesuffix(".toml") for path in FOLDER.iterdir()))
"""Names of the transcribed tables, in alphabetical order."""

ANY = "*"
ROLES = ("model", "method", "task")
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Field:
    """One quantity: its heading in the paper, its metric and unit, the budget in its heading."""

    printed: str
    metric: str = ""
    unit: str = ""
    frequency_components: int | None = None


@dataclass(frozen=True, config=_STRICT, kw_only=True)
class Row:
    """Values that hold for one model, method and task, each of which may be ``"*"`` for all."""

    model: str = ANY
    method: str = ANY
    task: str = ANY
    values: Mapping[str, Value]
    spreads: Mapping[str, float] = field(default_factory=dict)  # standard deviations
    prior_work: bool = False  # whether the paper marks the line as taken from another paper
    notes: str = ""


@dataclass(frozen=True, config=_STRICT)
class Head:
    """Label in the LaTeX, title, kind and notes of a table."""

    label: str
    title: str
    kind: Literal["hyperparameters", "results", "text"]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One transcribed table of the paper, but its axes and marks."""

    name: str
    table: Head
    fields: Mapping[str, Field]
    rows: tuple[Row, ...]  # in the printed order

    def names(self, role: str) -> tuple[str, ...]:
        """The models, methods or tasks that the rows name, in the printed order."""
        named = dict.fromkeys(getattr(row, role) for row in self.rows)
        return tuple(name for name in named if name != ANY)

    def settings(self, **wanted: str) -> dict[str, Value]:
        """All values that hold for a model, method and task; the more specific row wins."""
        for role, name in wanted.items():
            if role not in ROLES or name not in (ANY, *self.names(role)):
                known = ", ".join(self.names(role) if role in ROLES else ROLES)
                msg = f"{self.name} has no {role} {name!r}: it has {known or 'only rows for all'}"
                raise InvalidArgumentError(msg)
        roles = {**dict.fromkeys(ROLES, ANY), **wanted}
        found = [
            row
            for row in self.rows
            if all(getattr(row, role) in (ANY, name) for role, name in roles.items())
        ]
        found.sort(key=lambda row: sum(getattr(row, role) != ANY for role in ROLES))
        return {name: value for row in found for name, value in row.values.items()}


@cache
def load(name: str) -> Table:
    """Read one of :data:`TABLES`."""
    if name not in TABLES:
        msg = f"there is no table {name!r}: choose one of {', '.join(TABLES)}"
        raise InvalidArgumentError(msg)
    text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = {**tomllib.loads(text), "name": name}
    return TypeAdapter(Table).validate_python(data)

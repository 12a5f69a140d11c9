"""The paper's tables as data: hyper-parameters, and results to compare with.

There is one TOML file per table, in ``loca_theory/claims/printed_tables``;
``python -m experiments.paper`` lists them. At commit 5c3bc85, the last with a parser of the paper's
LaTeX, all 1015 comparisons with it agreed.

A role (model, method or task) that a row omits is ``"*"``: the row holds for all. Numbers are as
printed, but parameters and counts are written out (0.3M is 300000). ``notes`` list what looks
wrong.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Self

import click
from pydantic import ConfigDict, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from rich.console import Console
from rich.table import Table as Printed

from loca_theory.claims.printed import FOLDER
from loca_theory.cli.command import Command
from loca_theory.errors import InvalidArgumentError

Value = int | float | str | tuple[int | float | str, ...]

TABLES: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(".toml") for path in FOLDER.iterdir())
)
"""Names of the transcribed tables, in alphabetical order."""

ANY = "*"
ROLES = ("model", "method", "task")
_STRICT = ConfigDict(extra="forbid")
_Roles = list[Literal["model", "method", "task", "field"]]


@dataclass(frozen=True, config=_STRICT)
class Field:
    """One quantity: its heading in the paper, its metric and unit, the budget in its heading."""

    printed: str
    metric: str = ""
    unit: str = ""
    frequency_components: int | None = None


@dataclass(frozen=True, config=_STRICT, kw_only=True)
class Row:
    """Values that hold for one model, method and task, each of which may be ``"*"`` for all.

    Attributes:
        model: The model.
        method: The method.
        task: The task or data set.
        values: Value by the name of the field, as printed.
        spreads: The standard deviation printed beside a value, by the name of the field.
        prior_work: Whether the paper marks the line as taken from another paper.
        notes: Oddities of the row.
    """

    model: str = ANY
    method: str = ANY
    task: str = ANY
    values: Mapping[str, Value]
    spreads: Mapping[str, float] = field(default_factory=dict)
    prior_work: bool = False
    notes: str = ""

    @property
    def parameters(self) -> int | None:
        """Number of trainable parameters; None if the paper does not print it."""
        found = self.values.get("parameters")
        return found if isinstance(found, int) else None

    def covers(self, wanted: Mapping[str, str]) -> bool:
        """Whether the row holds for these roles, either by name or because it holds for all."""
        return all(getattr(self, role) in (ANY, name) for role, name in wanted.items())


@dataclass(frozen=True, config=_STRICT)
class Head:
    """Label in the LaTeX, title, kind and notes of a table."""

    label: str
    title: str
    kind: Literal["hyperparameters", "results", "text"]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, config=_STRICT, kw_only=True)
class Table:
    """One transcribed table of the paper.

    Attributes:
        name: Name of the file, without its ending.
        table: Its label, title, kind and notes.
        axes: Roles of the printed groups, lines and columns.
        fields: Every quantity by name.
        rows: The values, in the printed order.
        printed: Printed forms of names that differ from those in the rows, by the name in the rows.
        bold: The number in bold in each column, by model.
        underlined: The underlined number in each column, by model.
    """

    name: str
    table: Head
    axes: Mapping[Literal["group", "line", "column"], _Roles] = field(default_factory=dict)
    fields: Mapping[str, Field]
    rows: tuple[Row, ...]
    printed: Mapping[str, str] = field(default_factory=dict)
    bold: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    underlined: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @model_validator(mode="after")
    def _has_fields_of_all_values(self) -> Self:
        for number, row in enumerate(self.rows, start=1):
            for name in row.values.keys() - self.fields.keys():
                msg = f"row {number}: {name!r} is not among the fields of the table"
                raise ValueError(msg)
            for name in row.spreads.keys() - row.values.keys():
                msg = f"row {number}: {name!r} has a spread but no value"
                raise ValueError(msg)
        return self

    def names(self, role: str) -> tuple[str, ...]:
        """The models, methods or tasks that the rows name, in the printed order."""
        named = dict.fromkeys(getattr(row, role) for row in self.rows)
        return tuple(name for name in named if name != ANY)

    def settings(self, **wanted: str) -> dict[str, Value]:
        """All values that hold for a model, method and task; the more specific row wins."""
        roles = {**dict.fromkeys(ROLES, ANY), **self._known(wanted)}
        found = [row for row in self.rows if row.covers(roles)]
        found.sort(key=lambda row: sum(getattr(row, role) != ANY for role in ROLES))
        return {name: value for row in found for name, value in row.values.items()}

    def select(self, **wanted: str) -> tuple[Row, ...]:
        """The rows that name exactly these models, methods or tasks, in the printed order.

        There are several rows if the paper prints a method at several budgets.
        """
        roles = self._known(wanted).items()
        return tuple(r for r in self.rows if all(getattr(r, role) == name for role, name in roles))

    def _known(self, wanted: dict[str, str]) -> dict[str, str]:
        for role, name in wanted.items():
            if role not in ROLES:
                msg = f"{self.name} has no role {role!r}: choose from {', '.join(ROLES)}"
                raise InvalidArgumentError(msg)
            if name not in (ANY, *self.names(role)):
                known = ", ".join(self.names(role)) or "only rows for all"
                msg = f"{self.name} has no {role} {name!r}: it has {known}"
                raise InvalidArgumentError(msg)
        return wanted


def load(name: str) -> Table:
    """Read one of :data:`TABLES`."""
    if name not in TABLES:
        msg = f"there is no table {name!r}: choose one of {', '.join(TABLES)}"
        raise InvalidArgumentError(msg)
    return parse(name, (FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Table:
    """Read a table from TOML; an error says where the text breaks the schema."""
    try:
        data: dict[str, Any] = {**tomllib.loads(text), "name": name}
        return TypeAdapter(Table).validate_python(data)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name}.toml is not TOML: {error}"
    except ValidationError as error:
        first = error.errors()[0]
        msg = f"{name}.toml: {': '.join([*map(str, first['loc']), first['msg']])}"
    raise InvalidArgumentError(msg)


@click.command(cls=Command)
@click.option("--notes", is_flag=True, help="Also show errata, gaps and interpretations.")
def main(notes: bool) -> None:
    """List the transcribed tables of the paper."""
    printed = Printed("table", "label", "rows", "values", "title", box=None)
    for one in map(load, TABLES):
        values = sum(len(row.values) for row in one.rows)
        of_rows = [f"{row.model}, {row.method}, {row.task}: {row.notes}"
                   for row in one.rows if row.notes]  # fmt: skip
        lines = [f"- {note}" for note in (*one.table.notes, *of_rows) if notes]
        title = "\n".join((one.table.title, *lines))
        printed.add_row(one.name, one.table.label, str(len(one.rows)), str(values), title)
    Console(width=100).print(printed)


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper")

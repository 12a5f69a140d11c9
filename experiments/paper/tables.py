"""The transcribed tables: what a file holds, read and checked.

A file has four parts::

    [table]                      # label in the LaTeX, title, kind, notes on errata and gaps
    [axes]                       # what the printed groups, lines and columns stand for
    [fields.NAME]                # every quantity: how it is printed, its metric and unit
    [[rows]]                     # model, method, task and the values by field

A role that a row leaves out is ``"*"``: the row holds for all models, methods or tasks. Numbers are
as printed, parameters and counts in units (0.3M is 300000); what looks wrong is told in ``notes``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from loca_theory.errors import InvalidArgumentError

Value = int | float | str | tuple[int | float | str, ...]

FOLDER = Path(__file__).parent
TABLES: tuple[str, ...] = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""Names of the transcribed tables, in alphabetical order."""

ANY = "*"
ROLES = ("model", "method", "task")
KINDS = ("hyperparameters", "results", "text")


@dataclass(frozen=True)
class Field:
    """One quantity of a table.

    Attributes:
        name: Its name in the rows.
        printed: The heading in the paper, without markup; in a file of kind ``text``, the LaTeX
            that stands right before the number.
        metric: What a result measures, empty for a hyper-parameter.
        unit: Unit of the values, empty for pure numbers and text.
        frequency_components: The budget ℬ that the heading states for the column, where it does.
    """

    name: str
    printed: str
    metric: str = ""
    unit: str = ""
    frequency_components: int | None = None


@dataclass(frozen=True)
class Row:
    """Values that hold for one model, method and task.

    Attributes:
        model: The model, ``"*"`` for all of the table.
        method: The method, ``"*"`` for all.
        task: The task or data set, ``"*"`` for all.
        values: Value by the name of the field, as printed.
        spreads: The standard deviation printed beside a value, by the name of the field.
        prior_work: Whether the paper marks the line as taken from another paper.
        notes: What is odd about the row.
    """

    model: str = ANY
    method: str = ANY
    task: str = ANY
    values: Mapping[str, Value] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    prior_work: bool = False
    notes: str = ""

    @property
    def name(self) -> str:
        """The row in words, for messages."""
        return ", ".join(getattr(self, role) for role in ROLES if getattr(self, role) != ANY) or ANY

    @property
    def parameters(self) -> int | None:
        """Number of trainable parameters; None where the paper prints none."""
        found = self.values.get("parameters")
        return found if isinstance(found, int) else None

    def covers(self, wanted: Mapping[str, str]) -> bool:
        """Whether the row holds for these roles, by itself or because it holds for all."""
        return all(getattr(self, role) in (ANY, name) for role, name in wanted.items())


@dataclass(frozen=True)
class Axes:
    """What the groups, lines and columns of the printed table stand for.

    Attributes:
        group: Roles that head a block of lines (first column), empty where there are no blocks.
        line: Roles that the heading of a line names.
        column: Roles that the heading of a column names, from the top.
    """

    group: tuple[str, ...] = ()
    line: tuple[str, ...] = ()
    column: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """One transcribed table of the paper.

    Attributes:
        name: Name of the file, without its ending.
        label: LaTeX label of the table, empty for what only the text states.
        title: What it holds.
        kind: ``hyperparameters``, ``results`` or ``text``.
        axes: How it is printed.
        fields: Every quantity by name.
        rows: The values, in the printed order.
        printed: Names that are printed otherwise than the rows say, by the name in the rows.
        notes: Slips, gaps and readings of the table.
    """

    name: str
    label: str
    title: str
    kind: str
    axes: Axes
    fields: Mapping[str, Field]
    rows: tuple[Row, ...]
    printed: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def names(self, role: str) -> tuple[str, ...]:
        """The models, methods or tasks that the rows name, in the printed order."""
        named = dict.fromkeys(getattr(row, role) for row in self.rows)
        return tuple(name for name in named if name != ANY)

    def settings(self, **wanted: str) -> dict[str, Value]:
        """Every value that holds for a model, method and task; the narrower row wins.

        Args:
            **wanted: Any of ``model``, ``method`` and ``task``. A role left out takes only what
                holds for all.

        Returns:
            Value by the name of the field.

        Raises:
            InvalidArgumentError: The table does not know the name.
        """
        roles = self._known(wanted)
        roles = {role: roles.get(role, ANY) for role in ROLES}
        found = [row for row in self.rows if row.covers(roles)]
        found.sort(key=lambda row: sum(getattr(row, role) != ANY for role in ROLES))
        return {name: value for row in found for name, value in row.values.items()}

    def select(self, **wanted: str) -> tuple[Row, ...]:
        """The rows that name exactly these models, methods or tasks, in the printed order.

        Several rows answer where the paper prints a method at several budgets.

        Raises:
            InvalidArgumentError: The table does not know the name.
        """
        roles = self._known(wanted).items()
        return tuple(r for r in self.rows if all(getattr(r, role) == name for role, name in roles))

    def _known(self, wanted: dict[str, str]) -> dict[str, str]:
        for role, name in wanted.items():
            if role not in ROLES:
                msg = f"{self.name} has no role {role!r}: ask for {', '.join(ROLES)}"
                raise InvalidArgumentError(msg)
            if name not in (ANY, *self.names(role)):
                known = ", ".join(self.names(role)) or "all alike"
                msg = f"{self.name} has no {role} {name!r}: it has {known}"
                raise InvalidArgumentError(msg)
        return wanted


def load(name: str) -> Table:
    """Read one transcribed table.

    Args:
        name: One of :data:`TABLES`.

    Raises:
        InvalidArgumentError: There is no such table, or its file breaks the schema.
    """
    if name not in TABLES:
        msg = f"there is no table {name!r}: choose one of {', '.join(TABLES)}"
        raise InvalidArgumentError(msg)
    return parse(name, (FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Table:
    """Read a table from TOML.

    Args:
        name: Name of the table, for messages.
        text: The TOML.

    Raises:
        InvalidArgumentError: No TOML, or the schema is broken; the message names the location.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name}.toml is no TOML: {error}"
        raise InvalidArgumentError(msg) from error
    where = f"{name}.toml"
    _keys(data, where, {"table", "axes", "fields", "printed", "rows"}, {"table", "fields", "rows"})
    head = data["table"]
    required = {"label", "title", "kind"}
    _keys(head, f"{where}, [table]", required | {"notes"}, required)
    _texts(f"{where}, [table]", head, ("label", "title", "kind"))
    for section in ("fields", "printed", "axes"):
        _check(isinstance(data.get(section, {}), dict), f"{where}, [{section}] is no table")
    _check(isinstance(data["rows"], list), f"{where}: rows is not a list")
    _check(head["kind"] in KINDS, f"{where}: kind is one of {', '.join(KINDS)}")
    fields = {key: _field(where, key, value) for key, value in data["fields"].items()}
    axes = data.get("axes", {})
    _keys(axes, f"{where}, [axes]", {"group", "line", "column"}, set())
    _check(
        all(role in (*ROLES, "field") for roles in axes.values() for role in roles),
        f"{where}, [axes]: a role is one of {', '.join(ROLES)}, field",
    )
    return Table(
        name=name,
        label=head["label"],
        title=head["title"],
        kind=head["kind"],
        axes=Axes(**{axis: tuple(roles) for axis, roles in axes.items()}),
        fields=fields,
        rows=tuple(_row(f"{where}, row {i}", row, fields) for i, row in enumerate(data["rows"], 1)),
        printed=data.get("printed", {}),
        notes=tuple(head.get("notes", ())),
    )


def _field(where: str, name: str, data: dict[str, Any]) -> Field:
    known = {"printed", "metric", "unit", "frequency_components"}
    _keys(data, f"{where}, [fields.{name}]", known, {"printed"})
    _texts(f"{where}, [fields.{name}]", data, ("printed", "metric", "unit"))
    return Field(name=name, **data)


def _row(where: str, data: dict[str, Any], fields: Mapping[str, Field]) -> Row:
    _keys(data, where, {*ROLES, "values", "spreads", "prior_work", "notes"}, {"values"})
    _texts(where, data, (*ROLES, "notes"))
    values, spreads = data["values"], data.get("spreads", {})
    _check(isinstance(values, dict) and isinstance(spreads, dict), f"{where}: values by field")
    _check(isinstance(data.get("prior_work", False), bool), f"{where}: prior_work is true or false")
    for name in (*values, *spreads):
        _check(name in fields, f"{where}: {name!r} is not among the fields of the table")
    for name, spread in spreads.items():
        _check(name in values, f"{where}: {name!r} has a spread but no value")
        _check(type(spread) in (int, float), f"{where}: the spread of {name!r} is not a number")
    read = {name: _value(f"{where}, {name!r}", value) for name, value in values.items()}
    return Row(**{**data, "values": read})


def _value(where: str, value: Any) -> Value:
    items = value if isinstance(value, list) else [value]
    plain = get_args(Value)[:3]
    _check(
        bool(items) and all(type(item) in plain for item in items),
        f"{where}: a value is a number, a text, or a list of them",
    )
    return tuple(value) if isinstance(value, list) else value


def _keys(data: Any, where: str, known: set[str], required: set[str]) -> None:
    _check(isinstance(data, dict), f"{where} is no table")
    for key in sorted(required - set(data)):
        _check(False, f"{where} lacks {key!r}")
    for key in sorted(set(data) - known):
        _check(False, f"{where} has an unknown key {key!r}: it takes {', '.join(sorted(known))}")


def _texts(where: str, data: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        _check(isinstance(data.get(key, ""), str), f"{where}: {key} is not a text")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidArgumentError(message)

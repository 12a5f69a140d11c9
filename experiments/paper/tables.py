"""The transcribed tables: the schema of their files, reading and checking.

A file has four parts::

    [table]                      # label in the LaTeX, title, kind, notes on errata and gaps
    [axes]                       # the roles of the printed groups, lines and columns
    [fields.NAME]                # every quantity: how it is printed, its metric and unit
    [[rows]]                     # model, method, task and the values by field

A role that a row omits is ``"*"``: the row holds for all models, methods or tasks. Numbers are as
printed, but parameters and counts are written out (0.3M is 300000). ``notes`` list what looks
wrong.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from loca_theory.claims.printed import FOLDER
from loca_theory.errors import InvalidArgumentError

Value = int | float | str | tuple[int | float | str, ...]

TABLES: tuple[str, ...] = tuple(
    sorted(path.name.removesuffix(".toml") for path in FOLDER.iterdir())
)
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
            directly before the number.
        metric: Metric of a result; empty for a hyper-parameter.
        unit: Unit of the values; empty for pure numbers and text.
        frequency_components: The budget ℬ in the heading of the column; None if it has none.
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
        model: The model, ``"*"`` for all models of the table.
        method: The method, ``"*"`` for all.
        task: The task or data set, ``"*"`` for all.
        values: Value by the name of the field, as printed.
        spreads: The standard deviation printed beside a value, by the name of the field.
        prior_work: Whether the paper marks the line as taken from another paper.
        notes: Oddities of the row.
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
        """A name of the row for messages."""
        return ", ".join(getattr(self, role) for role in ROLES if getattr(self, role) != ANY) or ANY

    @property
    def parameters(self) -> int | None:
        """Number of trainable parameters; None if the paper does not print it."""
        found = self.values.get("parameters")
        return found if isinstance(found, int) else None

    def covers(self, wanted: Mapping[str, str]) -> bool:
        """Whether the row holds for these roles, either by name or because it holds for all."""
        return all(getattr(self, role) in (ANY, name) for role, name in wanted.items())


@dataclass(frozen=True)
class Axes:
    """The roles of the groups, lines and columns of the printed table.

    Attributes:
        group: Roles in the heading of a block of lines (first column); empty without blocks.
        line: Roles in the heading of a line.
        column: Roles in the heading of a column, from the top.
    """

    group: tuple[str, ...] = ()
    line: tuple[str, ...] = ()
    column: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """One transcribed table of the paper.

    Attributes:
        name: Name of the file, without its ending.
        label: LaTeX label of the table; empty for values that only the text states.
        title: Title of the table.
        kind: ``hyperparameters``, ``results`` or ``text``.
        axes: Roles of the printed groups, lines and columns.
        fields: Every quantity by name.
        rows: The values, in the printed order.
        printed: Printed forms of names that differ from those in the rows, by the name in the rows.
        notes: Errata, gaps and interpretations of the table.
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
        """All values that hold for a model, method and task; the more specific row wins.

        Args:
            **wanted: Any of ``model``, ``method`` and ``task``. For an omitted role only rows that
                hold for all count.

        Returns:
            Value by the name of the field.

        Raises:
            InvalidArgumentError: The table has no such name.
        """
        roles = self._known(wanted)
        roles = {role: roles.get(role, ANY) for role in ROLES}
        found = [row for row in self.rows if row.covers(roles)]
        found.sort(key=lambda row: sum(getattr(row, role) != ANY for role in ROLES))
        return {name: value for row in found for name, value in row.values.items()}

    def select(self, **wanted: str) -> tuple[Row, ...]:
        """The rows that name exactly these models, methods or tasks, in the printed order.

        There are several rows if the paper prints a method at several budgets.

        Raises:
            InvalidArgumentError: The table has no such name.
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
        InvalidArgumentError: The text is not TOML, or breaks the schema; the message says where.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{name}.toml is not TOML: {error}"
        raise InvalidArgumentError(msg) from error
    where = f"{name}.toml"
    _keys(data, where, {"table", "axes", "fields", "printed", "rows"}, {"table", "fields", "rows"})
    head = data["table"]
    required = {"label", "title", "kind"}
    _keys(head, f"{where}, [table]", required | {"notes"}, required)
    _texts(f"{where}, [table]", head, ("label", "title", "kind"))
    for section in ("fields", "printed", "axes"):
        _check(isinstance(data.get(section, {}), dict), f"{where}, [{section}] is not a table")
    _check(isinstance(data["rows"], list), f"{where}: rows is not a list")
    _check(head["kind"] in KINDS, f"{where}: kind must be one of {', '.join(KINDS)}")
    fields = {key: _field(where, key, value) for key, value in data["fields"].items()}
    axes = data.get("axes", {})
    _keys(axes, f"{where}, [axes]", {"group", "line", "column"}, set())
    _check(
        all(role in (*ROLES, "field") for roles in axes.values() for role in roles),
        f"{where}, [axes]: a role must be one of {', '.join(ROLES)}, field",
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
    are_tables = isinstance(values, dict) and isinstance(spreads, dict)
    _check(are_tables, f"{where}: values and spreads must be tables")
    is_flag = isinstance(data.get("prior_work", False), bool)
    _check(is_flag, f"{where}: prior_work must be true or false")
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
        f"{where}: a value must be a number, a text, or a list of them",
    )
    return tuple(value) if isinstance(value, list) else value


def _keys(data: Any, where: str, known: set[str], required: set[str]) -> None:
    _check(isinstance(data, dict), f"{where} is not a table")
    for key in sorted(required - set(data)):
        _check(False, f"{where} lacks {key!r}")
    for key in sorted(set(data) - known):
        _check(False, f"{where} has an unknown key {key!r}: choose from {', '.join(sorted(known))}")


def _texts(where: str, data: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        _check(isinstance(data.get(key, ""), str), f"{where}: {key} is not a text")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidArgumentError(message)

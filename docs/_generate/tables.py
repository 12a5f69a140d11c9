"""Tables of pages that are made from the code.

The columns of every result come from the docstrings of its row types, the methods from
:data:`loca_theory.expressivity.METHODS`, the types of adapter from what decides how one is read,
and the checks and the public names from their docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pkgutil import iter_modules

from peft import PeftType

import loca_theory as loca
from loca_theory.checkpoints.change.adapter import kinds
from loca_theory.claims import checks as all_checks
from loca_theory.expressivity import METHODS
from loca_theory.expressivity.methods.names import seed_name
from loca_theory.sweeps.results import meanings

PACKAGES = (
    *("transforms", "sweeps", "increments", "locations", "expressivity", "adapters", "rounding"),
    *("dependence", "convergence", "checkpoints", "claims", "plotting"),
)
"""The packages with public names, each of which builds only on packages before it."""
_K, _R = 768, 8
# Methods that are not a type of their own in PEFT.
_OPTIONS = {
    "LoCA": "`LOCA` of this package",
    "DoRA": "`LORA`, `use_dora`",
    "BD-LoRA": "`LORA`, `use_bdlora`",
    "MiCA": "`LORA`, `init_lora_weights`",
    "LoRA-FA": "`LORA`, `create_lorafa_optimizer`",
    "WaveFT-PEFT": "`WAVEFT`",
}


def columns() -> Iterator[str]:
    """The columns of each table of each result, but for claims, whose row is made of several."""
    for result in _results():
        if result is loca.VerificationResult:
            continue
        command = import_module(f"loca_theory.cli.commands.{result.command}")
        if printed := getattr(command, "printed_columns", dict)():
            yield from (f"## `{result.command}`: the printed table", "", *_meanings(printed))
        for name, row in result.tables().items():
            yield from (f"## `{result.command}`: `{name}`", "", _text(_summary(row)), "")
            yield from _meanings(meanings(row))


def methods() -> Iterator[str]:
    """Each method: its names, what it is, its cost and its error; then families and coders."""
    table = loca.methods(K=_K, r=_R)
    exact = [row.name for row in table if "exact" in row.engines]
    simulation = loca.simulate(_K, ranks=_R, methods=exact, engine="exact")
    errors = {row.method: f"{row.error:.4f}" for row in simulation}
    heads = ("name (letter)", "what it is", "source", "in PEFT")
    heads += ("oracle", "trained numbers", "error")
    rows = [
        (
            _named(row.name),
            row.title,
            _link(row.reference),
            _in_peft(row.name),
            "yes" if row.is_oracle else "",
            "" if row.parameters is None else f"{row.parameters:,}",
            errors.get(row.name, "simulated"),
        )
        for row in table
    ]
    yield from _table(heads, rows)
    yield from ("## Families", "")
    families: dict[type, list[str]] = {}
    for name, method in METHODS.items():
        families.setdefault(type(method), []).append(name)
    yield from _table(
        ("methods", "family"),
        ((", ".join(names), _text(_before_attributes(one))) for one, names in families.items()),
    )
    yield from ("## Coders", "", "`analyze --bits` compares these at equal bits.", "")
    yield from _table(
        ("name", "what it is", "source"),
        ((one.name, one.title, _link(one.reference)) for one in table.coders),
    )


def _in_peft(method: str) -> str:
    """What makes the method in PEFT: a type of adapter, or an option of one; "" if nothing does."""
    name = re.sub(r"\W", "", method).upper()
    is_type = name in {kind.value for kind in PeftType}
    return _OPTIONS.get(method, f"`{name}`" if is_type else "")


def adapters() -> Iterator[str]:
    """Each type of adapter of PEFT that is read or refused."""
    yield from _table(
        ("`peft_type`", "ΔW"),
        (
            ("`LORA`", "from its factors; with some options, as below, from W as well"),
            (_codes(kinds.ADDITIVE), "does not depend on W"),
            (_codes(kinds.MULTIPLICATIVE), "transforms W, or uses its singular vectors"),
        ),
    )
    reasons: dict[str, list[str]] = {}
    for name, reason in kinds.REFUSED.items():
        reasons.setdefault(reason, []).append(name)
    yield from _table(
        ("not read", "a method"), ((_codes(names), why) for why, names in reasons.items())
    )


def checks() -> Iterator[str]:
    """Each check, by module, with what it measures."""
    for module in iter_modules(all_checks.__path__):
        loaded = import_module(f"{all_checks.__name__}.{module.name}")
        functions = [
            one
            for name, one in vars(loaded).items()
            if inspect.isfunction(one) and one.__module__ == loaded.__name__ and name[0] != "_"
        ]
        yield from (f"## {module.name.replace('_', ' ').capitalize()}", "")
        yield from (_text(_summary(loaded)), "")
        rows = ((f"`{one.__name__}`", _text(_summary(one))) for one in functions)
        yield from _table(("check", "what it measures"), rows)


def names() -> Iterator[str]:
    """Each public name, by package, with the first line of its docstring."""
    for package in PACKAGES:
        loaded = import_module(f"loca_theory.{package}")
        yield from (f"## {package.capitalize()}", "", _text(_summary(loaded)), "")
        public = ((name, getattr(loaded, name)) for name in loaded.__all__)
        rows = (
            (f"`{package}.{name}`", _text(_summary(one)) if callable(one) else _type_of(one))
            for name, one in public
        )
        yield from _table(("name", "what it is"), rows)


def _type_of(constant: object) -> str:
    """What a constant is: its docstring is that of its type."""
    if isinstance(constant, dict):
        kind = type(next(iter(constant.values()))).__mro__[-2].__name__
        return f"Objects of the type `{kind}`, by name."
    return f"The type {_text(str(constant))}."


def _results() -> list[type[loca.Result]]:
    kinds_of_results = (getattr(loca, name) for name in loca.__all__)
    return [
        kind
        for kind in kinds_of_results
        if inspect.isclass(kind) and issubclass(kind, loca.Result) and kind is not loca.Result
    ]


def _named(name: str) -> str:
    """The name of a method, and its letter if it has one."""
    letter = seed_name(name)
    return name if letter == name else f"{name} (`{letter}`)"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def _meanings(columns: Mapping[str, str]) -> Iterator[str]:
    texts = ((f"`{column}`", _text(text)) for column, text in columns.items())
    yield from _table(("column", "meaning"), texts)


def _summary(of: object) -> str:
    return (inspect.getdoc(of) or "").partition("\n\n")[0]


def _before_attributes(of: type) -> str:
    return (inspect.getdoc(of) or "").partition("\nAttributes:")[0]


def _text(docstring: str) -> str:
    """A text in the markup of docstrings as one line of Markdown."""
    line = " ".join(docstring.split())
    line = re.sub(r":math:`([^`]+)`", r"$\1$", line)
    line = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", line).replace("``", "`")
    pieces = re.split(r"(`[^`]*`|\$[^$]*\$)", line)
    pieces[::2] = [re.sub(r"([_*])", r"\\\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _link(reference: str) -> str:
    kind, _, name = reference.partition(":")
    addresses = {
        "arXiv": "https://arxiv.org/abs/",
        "openreview": "https://openreview.net/forum?id=",
    }
    return f"[{reference}]({addresses[kind]}{name})" if kind in addresses else reference

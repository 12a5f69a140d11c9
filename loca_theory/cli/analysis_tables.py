"""Printing an analysis of checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loca_theory.cli.output import console, plain_table, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from loca_theory.checkpoints import Report, Skipped

# What an adapter can be (LoRA, LoCA, FourierFT), and plain selection of entries beside them.
_SHOWN = ("R", "D", "FourierFT", "S")
_MOST_ROWS, _MOST_REASONS = 60, 8
# From so many columns on, everything is shown.
_WIDE = 120


def print_report(
    report: Report, summary: Mapping[str, Any], text: str, config: str, ranks: Sequence[int]
) -> None:
    """A line a matrix, totals by kind and layer, the verdict, what was left out."""
    out = console()
    good = [row for row in report.rows if row["sigma"] is not None]
    if good:
        _print_matrices(out, report.rows, ranks)
        _print_totals(out, "Totals by kind of matrix", summary["by_kind"])
        if len(summary["by_layer"]) > 1:
            _print_totals(out, "Totals by layer", summary["by_layer"])
    out.print(text, highlight=False)
    if config:
        out.print()
        out.print(config, highlight=False, style="cyan", markup=False, soft_wrap=True)
    print_skipped(out, report.skipped)


def _print_matrices(out: Console, rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> None:
    used = [r for r in ranks if any(error["r"] == r for row in rows for error in row["errors"])]
    r = used[0] if used else None
    out.print("Every increment", style="bold")
    if r is not None:
        line = f"errors at the budget of r = {r}: R LoRA (shuf.: of the shuffled entries),"
        out.print(f"{line} D best DCT coefficients, S best entries", style="dim", highlight=False)
    out.print()
    is_wide = out.width >= _WIDE
    columns = [column for column in _COLUMNS if is_wide or not column.only_wide]
    table = plain_table("matrix", *(column.heading for column in columns))
    for row in rows[:_MOST_ROWS]:
        name = _label(row, is_wide=is_wide)
        if row["sigma"] is None:
            table.add_row(name, "x".join(map(str, row["shape"])), "not finite", style="red")
            continue
        found = {error["curve"]: error for error in row["errors"] if error["r"] == r}
        table.add_row(name, *(column.cell(row, found) for column in columns))
    print_table(table, out)
    if len(rows) > _MOST_ROWS:
        out.print(f"… and {len(rows) - _MOST_ROWS} more; all of them in --format json or csv")
    out.print()


@dataclass(frozen=True)
class _Column:
    """A column: its heading, and what it shows of a row and its errors."""

    heading: str
    cell: Callable[[Mapping[str, Any], Mapping[str, Any]], str]
    only_wide: bool = False


def _number(key: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    """A statistic that not every matrix has."""

    def cell(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        del found
        return "none" if row[key] is None else f"{row[key]:.3f}"

    return cell


def _error(curve: str) -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    def cell(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        del row
        if curve not in found:
            return ""
        error = found[curve]["error"]
        is_best = error == min(found[other]["error"] for other in _SHOWN)
        return f"[bold]{error:.3f}[/]" if is_best else f"{error:.3f}"

    return cell


_COLUMNS = (
    _Column("shape", lambda row, _: "x".join(map(str, row["shape"]))),
    _Column("TV", lambda row, _: f"{row['tv']:.4f}"),
    _Column("p", lambda row, _: f"{row['tv_p_value']:.3f}"),
    _Column("p printed", _number("tv_p_value_as_printed"), only_wide=True),
    _Column("zeros", lambda row, _: f"{row['zero_fraction']:.0%}", only_wide=True),
    _Column("MP dist.", _number("mp_distance"), only_wide=True),
    _Column("outside", lambda row, _: f"{row['outlier_mass']:.0%}"),
    _Column("spikes", lambda row, _: str(row["spikes"]), only_wide=True),
    _Column("R", _error("R")),
    _Column("shuf.", lambda _, found: f"{found['R']['shuffled_error']:.3f}" if found else ""),
    _Column("D", _error("D")),
    _Column("FourierFT", _error("FourierFT"), only_wide=True),
    _Column("S", _error("S")),
)


def _label(row: Mapping[str, Any], *, is_wide: bool) -> str:
    """The name, or where room is short the layer and kind."""
    if is_wide or row["layer"] is None or row["kind"] == "other":
        return _short(row["name"])
    return f"{row['layer']} {row['kind']}"


def _print_totals(out: Console, title: str, groups: Mapping[str, Mapping[str, Any]]) -> None:
    out.print(title, style="bold")
    out.print("errors weighted by energy; in brackets the expectation for independent normal "
              "entries", style="dim")  # fmt: skip
    out.print()
    ranks = list(
        dict.fromkeys(error["r"] for group in groups.values() for error in group["errors"])
    )
    shown = ranks if out.width >= _WIDE else ranks[:1]
    columns = [(r, curve) for r in shown[:3] for curve in ("R", "D")]
    errors_at = (f"{curve}, r={r}" for r, curve in columns)
    table = plain_table("", "number", "not normal", "TV", "outside", *errors_at)
    for name, group in groups.items():
        errors = {(error["r"], error["curve"]): error for error in group["errors"]}
        cells = [
            f"{errors[key]['error']:.2f} ({errors[key]['iid_error']:.2f})" if key in errors else ""
            for key in columns
        ]
        table.add_row(
            name,
            str(group["matrices"]),
            str(group["not_normal"]),
            f"{group['median_tv']:.4f}",
            f"{group['median_outlier_mass']:.0%}",
            *cells,
        )
    print_table(table, out)
    out.print()


def print_skipped(out: Console, skipped: Sequence[Skipped]) -> None:
    """What was left out, by reason."""
    if not skipped:
        return
    reasons: dict[str, list[str]] = {}
    for one in skipped:
        reasons.setdefault(one.reason.partition(":")[0], []).append(one.name)
    out.print()
    out.print(f"Left out: {len(skipped)}", style="bold")
    for reason, names in list(reasons.items())[:_MOST_REASONS]:
        first = ", ".join(_short(name) for name in names[:2])
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        out.print(f"  {reason}: {first}{more}", highlight=False, markup=False)


def _short(name: str) -> str:
    return name.removesuffix(".weight")

"""The designs of the experiments: what is compared, at which cost; and the verdicts.

``python -m experiments.design`` prints every comparison of the designs with its margin, seeds and
cost; with the folder of the runs' tables the verdicts, or how many runs there are. Commit 670901ed
is the last that computed the power of the designs, before and during the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import click
import pandas as pd

from experiments.finetuning.comparisons.decisions import Decided, Decision, decide_all
from experiments.finetuning.comparisons.design import (
    DESIGNS,
    Arm,
    Comparison,
    Design,
    read_alternatives,
    read_design,
)
from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import read_runs
from experiments.tables import Row, print_table
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

_UNITS = {"accuracy": "", "loss": " %"}
_DECIDING = ("measure", "margin", "difference", "low", "high", "within")
_DESCRIPTIVE = ("fixed_low", "fixed_high", "kinds_low", "kinds_high", "between")
_SHOWN = (*_DECIDING, *_DESCRIPTIVE)
_RESULTS = """
within: the sides are equivalent within this margin
fixed: bounds for these tasks alone, which decide nothing
kinds: bounds if the kinds of tasks are random as well, which decide nothing
between: estimated standard deviation of true differences between tasks"""
_DECIDED = tuple(field.name for field in fields(Decision))
# The settings in words, and the unit of their values.
_SETTINGS = {
    "scaling": ("α =", 1.0),
    "alternating": ("% of steps alternating:", 0.01),
    "location_rate": ("location rate", 1.0),
}


@click.command(cls=Command)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--words", is_flag=True, help="Also print the analysis in words.")
@click.option("--out", type=Folder(), help="Folder to write the verdicts to as a table.")
def main(folder: Path | None, words: bool, out: Path | None) -> None:
    """Print the designs of the experiments, with the verdicts from the runs' tables in FOLDER.

    Example: python -m experiments.design loca-results/experiments
    """
    if out and folder is None:
        raise click.UsageError("--out needs the FOLDER of the runs' tables")
    runs = None if folder is None else read_runs(folder)
    for path in DESIGNS:
        design = read_design(path)
        if words:
            click.echo(design.file["analysis"].strip())
        if runs is None:
            _print_design(design)
        else:
            _print_results(design, decide_all(design, runs))
    if out and runs is not None:
        for path in store_verdicts(runs, out):
            click.echo(f"wrote {path}", err=True)


def _print_design(design: Design) -> None:
    file, (runs, hours) = design.file, design.cost()
    for name in file["families"]:
        _print_family(design, name)
    lines = (
        "",
        f"fixed on {file['date']}",
        f"all runs, with curves and the choice of rates: {runs}, {hours:.1f} CPU hours",
        *(f"not decided: {row['claim']}. {row['reason']}" for row in file.get("undecided", ())),
    )
    click.echo("\n".join(lines))


def _print_family(design: Design, name: str) -> None:
    family, members, rows = design.file["families"][name], design.members(name), []
    for member in members:
        hours = f"{design.cost([member])[1]:.2f}"
        rows.append((member.name, member.kind, _margin(member), _size(member), hours))
    note = f"{family['reason']} One-sided level 5 % / {len(members)}; "
    note += f"{design.cost(members)[1]:.1f} CPU hours, with shared runs counted once."
    headings = ("margin", "tasks × seeds", "CPU hours")
    print_table(family["title"], ("comparison", "kind"), headings, rows, note)


def _print_results(design: Design, done: Sequence[Decided]) -> None:
    """The verdicts on each family, and how many runs there are where some are missing."""
    table, left = pd.DataFrame(verdict_rows(design, done)), ("comparison", "verdict")
    for name, family in design.file["families"].items():
        size, missing = len(design.members(name)), []
        decided = table[(table["family"] == name) & table["verdict"].notna()]
        rows = decided[[*left, *_SHOWN]].itertuples(index=False)
        note = f"each bound has the one-sided level 5 % / {size}"
        print_table(family["title"], left, _SHOWN, rows, note)
        for test, pairs, verdict in done:
            if test.family == name and not verdict:
                missing.append((test.name, _margin(test), min(pairs), max(pairs), _size(test)))
        note = "no verdict before all runs are there; pairs: of each task, both sides run"
        headings = ("margin", "fewest pairs", "most", "of")
        title = f"{family['title']} Runs are missing"
        print_table(title, ("comparison",), headings, missing, note)
    click.echo(_RESULTS)


def _size(pair: Comparison) -> str:
    return f"{len(pair.tasks)} × {pair.seeds}"


def _margin(pair: Comparison) -> str:
    return f"{pair.margin:g}{_UNITS[pair.measure]}"


def store_verdicts(runs: pd.DataFrame, out: Path) -> list[Path]:
    """Write the tables ``verdicts`` of all designs and ``alternatives``, and return the paths."""
    instead = read_alternatives()
    dates, verdicts, alternatives = {}, [], []
    for path in DESIGNS:
        design, changed = read_design(path), read_design(path, instead)
        dates[path.stem] = str(design.file["date"])
        verdicts += verdict_rows(design, decide_all(design, runs))
        alternatives += verdict_rows(changed, decide_all(changed, runs))
    names = {fields["name"] for fields in instead.values()}
    alternatives = [row for row in alternatives if row["comparison"] in names]
    about = manifest(grid={"dates": dates}, seed=0, device="cpu", dtype="float64")
    tables = {"verdicts": verdicts, "alternatives": alternatives}
    return [path for name, rows in tables.items() for path in store_rows(rows, about, out, name)]


def verdict_rows(design: Design, done: Iterable[Decided]) -> list[Row]:
    """One row per comparison of a design: its verdict and what it rests on."""
    return [
        {
            "comparison": comparison.name,
            "family": comparison.family,
            "family_title": design.file["families"][comparison.family]["title"],
            "title": _title(comparison),
            "claims": ", ".join(comparison.claims),
            "kind": comparison.kind,
            "measure": comparison.measure,
            "margin": comparison.margin,
            "tasks": len(comparison.tasks),
            "task_names": list(comparison.tasks),
            "seeds": comparison.seeds,
            "pairs": sum(pairs),
            **(asdict(decision) if decision else dict.fromkeys(_DECIDED)),
        }
        for comparison, pairs, decision in done
    ]


def _title(comparison: Comparison) -> str:
    """The two sides of a comparison, in words."""
    ends = (comparison.method, comparison.over)
    # The difference of the scores is positive where the method's loss is lower.
    if comparison.measure == "loss":
        ends = ends[::-1]
    title = " − ".join(_side(arms, with_name=arms is comparison.method) for arms in ends)
    return f"{title} (text)" if comparison.tasks == ("text",) else title


def _side(arms: Sequence[Arm], *, with_name: bool) -> str:
    name = find_method(arms[0].method).title
    if arms[0].setting:
        setting, unit = _SETTINGS[arms[0].setting]
        values = ", ".join(f"{arm.value / unit:g}" for arm in arms)
        return f"{name}, {setting} {values}" if with_name else values
    ranks = ", ".join(str(arm.r) for arm in arms if arm.r)
    return f"{name}, r = {ranks}" if ranks else name


if __name__ == "__main__":
    main(prog_name="python -m experiments.design")

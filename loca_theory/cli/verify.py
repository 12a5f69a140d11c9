"""``loca-theory verify``: decide the claims of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from loca_theory import LocaTheoryError, ResourceError
from loca_theory.claims import (
    Effort,
    Entry,
    Ledger,
    Verdict,
    Verification,
    document,
    load_ledger,
    merged,
    read_entries,
    write_report,
)
from loca_theory.cli.options import DEFAULT_OUT, SEED, WORKERS, Common, Folder, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.stores import open_store, running
from loca_theory.cli.studies import report_written
from loca_theory.sweeps import manifest, store_rows

_NOT_SUPPORTED = 3
_CSV_COLUMNS = ("id", "verdict", "observed", "standard_error", "low", "high", "expected", "rule",
                "n", "seconds", "effort", "seed", "ledger", "note")  # fmt: skip
# The table that the figures are drawn from.
_TABLE_COLUMNS = ("part", "kind", "subject", "slip", *_CSV_COLUMNS)


class VerdictsChangedError(LocaTheoryError):
    """Claims came to another verdict than the ledger expects."""


@click.command("verify")
@click.argument("names", nargs=-1, metavar="[CLAIM]...")
@click.option("--quick", is_flag=True, help="Few draws: minutes for all; more stays inconclusive.")
@click.option("--deep", is_flag=True, help="Many draws: an hour or more for all.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with code 3 if a claim is not supported (not for those inconclusive or not run).",
)
@click.option(
    "--as-expected",
    is_flag=True,
    help="Fail where a verdict is not the one the ledger expects, or is inconclusive unexpectedly.",
)
@click.option("--list", "only_list", is_flag=True, help="Show the ledger; decide nothing.")
@click.option(
    "--results",
    type=Folder(),
    metavar="DIR",
    help="Folder with the tables of experiments, for the empirical claims.  "
    "[default: the folder of --out, where there is one]",
)
@click.option(
    "--ledger",
    "ledger_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A ledger instead of the package's own.",
)
@options(
    SEED,
    *WORKERS,
    out="Write CLAIMS.md, claims.json and claims.parquet here, with what earlier runs decided.  "
    f"[default: {DEFAULT_OUT}]",
)
def command(
    *,
    common: Common,
    names: tuple[str, ...],
    quick: bool,
    deep: bool,
    strict: bool,
    as_expected: bool,
    only_list: bool,
    results: Path | None,
    ledger_path: Path | None,
) -> int:
    """Decide claims of the paper; without CLAIM, all.

    A name that ends in a dot stands for all that begin with it. A verdict follows from what a
    check observes by a rule that was fixed before. CLAIMS.md and claims.json keep of each claim the
    observation with the most effort and, of several seeds that disagree, the first; claims.parquet
    is their table.

    \b
    Examples:
      loca-theory verify --quick
      loca-theory verify theorem1.order condition-u
      loca-theory verify noniid. --deep --out ledger
    """
    if quick and deep:
        msg = "--quick and --deep exclude each other"
        raise click.UsageError(msg)
    ledger = load_ledger(ledger_path)
    if ledger_path:
        _check_figures(ledger)
    if only_list:
        _list(ledger, names, common)
        return 0
    effort = Effort.QUICK if quick else Effort.DEEP if deep else Effort.DEFAULT
    if results is None and common.folder.is_dir():
        results = common.folder
    verification = Verification(ledger, names, effort, common.seed, results)
    earlier = read_entries(common.folder) if common.folder.is_dir() else []
    store = open_store(common, verification.version)
    with running(common, store, "deciding", "claims") as runner:
        entries = verification.run(runner)
    origin = manifest(
        grid=verification.describe(),
        seed=common.seed,
        device="cpu",
        dtype="float64",
    )
    together = merged(earlier, entries, ledger)
    written = _write(together, ledger, origin, common)
    _print(entries, ledger, origin, written, common)
    _note_kept(entries, together, common)
    report_written(written, common)
    return _end(entries, common, strict=strict, as_expected=as_expected)


def _write(
    entries: list[Entry], ledger: Ledger, origin: dict[str, Any], common: Common
) -> list[Path]:

    rows = [{name: one[name] for name in _TABLE_COLUMNS} for one in entries]
    try:
        written = write_report(common.folder, entries, ledger, origin)
        return written + store_rows(rows, origin, common.folder, "claims")
    except ResourceError:
        if common.out:
            raise
        note("CLAIMS.md and claims.json are not written", quiet=common.quiet)
        return []


def _check_figures(ledger: Ledger) -> None:
    """The package's own ledger is tested for this."""
    from loca_theory.plotting import FIGURES

    for claim in ledger.claims:
        if claim.figure and claim.figure not in FIGURES:
            why = f"no figure {claim.figure!r}; there are {', '.join(FIGURES)}"
            raise claim.error(why)


def _note_kept(entries: Sequence[Entry], together: Sequence[Entry], common: Common) -> None:
    """Say where the files keep an earlier observation, and whether it says something else."""
    kept = {one["id"]: one for one in together}
    pairs = [(one, kept[one["id"]]) for one in entries if kept[one["id"]] is not one]
    if not pairs:
        return
    differing = [
        f"{new['id']} ({old['verdict']} by {old['effort']} effort with seed {old['seed']}"
        f"{' and older code' if old['stale'] else ''}, now {new['verdict']})"
        for new, old in pairs
        if new["verdict"] != old["verdict"]
    ]
    older = sum(old["stale"] for _, old in pairs)
    text = f"CLAIMS.md keeps what earlier runs have observed for {len(pairs)} of these claims"
    text += f", for {older} with older code" if older else ""
    text += f"; different from now: {', '.join(differing)}" if differing else "; no verdict differs"
    note(text, quiet=common.quiet)


def _print(
    entries: list[Entry],
    ledger: Ledger,
    origin: dict[str, Any],
    written: list[Path],
    common: Common,
) -> None:
    match common.output_format:
        case "json":
            files = [str(path) for path in written]
            print_json({**document(entries, ledger, origin), "files": files})
        case "csv":
            print_csv([{name: one[name] for name in _CSV_COLUMNS} for one in entries], _CSV_COLUMNS)
        case _:
            from loca_theory.cli.claim_tables import print_claims

            print_claims(entries, ledger)
            if written:
                click.echo(f"CLAIMS.md and claims.json are in {common.folder}.")


def _end(entries: list[Entry], common: Common, *, strict: bool, as_expected: bool) -> int:
    changed = [one for one in entries if one["changed"]]
    for one in changed:
        line = f"{one['id']} is {one['verdict']}, and the ledger expects {one['ledger']}"
        note(line, quiet=common.quiet and not as_expected)
    absent = sum(one["verdict"] == Verdict.NOT_RUN for one in entries)
    if absent and len(entries) > 1:
        line = f"{absent} not run for lack of tables of experiments; CLAIMS.md says what makes them"
        note(line, quiet=common.quiet)
    lost = [one for one in entries if one["lost"]]
    if lost:
        line = f"inconclusive, though the ledger expects a decision: {_ids(lost)}"
        note(line, quiet=common.quiet and not as_expected)
    if as_expected and (wrong := [*changed, *lost]):
        are = "1 verdict is" if len(wrong) == 1 else f"{len(wrong)} verdicts are"
        msg = f"{are} not as the ledger expects: {_ids(wrong)}; say so in claims.toml, with the "
        msg += "reason ('verdict', or 'undecided' for efforts that need not decide)"
        raise VerdictsChangedError(msg)
    fails = any(one["verdict"] == Verdict.NOT_SUPPORTED for one in entries)
    return _NOT_SUPPORTED if strict and fails else 0


def _ids(entries: Sequence[Entry]) -> str:
    return ", ".join(one["id"] for one in entries)


def _list(ledger: Ledger, names: tuple[str, ...], common: Common) -> None:
    columns = ("id", "kind", "subject", "ledger", "place", "statement")
    rows = [
        {**{name: str(getattr(claim, name)) for name in columns}, "ledger": claim.ledger.value}
        for claim in ledger.find(names)
    ]
    match common.output_format:
        case "json":
            print_json({"claims": rows})
        case "csv":
            print_csv(rows, columns)
        case _:
            from loca_theory.cli.claim_tables import print_ledger

            print_ledger(rows, ledger)

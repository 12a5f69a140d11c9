"""``loca-theory verify``: check the claims of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from loca_theory._words import counted
from loca_theory.cli.options import DEFAULT_OUT, Common, command_of
from loca_theory.cli.output import emit
from loca_theory.cli.running import running
from loca_theory.errors import InvalidArgumentError, LocaTheoryError, ResourceError

if TYPE_CHECKING:
    from loca_theory.claims import VerificationResult
    from loca_theory.claims.entries import Entry

_NOT_SUPPORTED = 3
# What --list says of a claim in JSON and CSV.
_LISTED = ("id", "kind", "subject", "expected_verdict", "section", "passage", "statement")


@command_of(
    "claims.verification:verify",
    click.argument("names", nargs=-1, metavar="[CLAIM]..."),
    click.option("--quick", is_flag=True, help="Few random draws: a minute, but less is decided."),
    click.option("--deep", is_flag=True, help="Many random draws: an hour or more."),
    click.option("--strict", is_flag=True, help="Exit with code 3 if a claim is not supported."),
    click.option(
        "--as-expected",
        is_flag=True,
        help="Exit with code 1 if a verdict is not the one that the ledger expects; it may allow "
        "'inconclusive' for few draws.",
    ),
    click.option("--list", "only_list", is_flag=True, help="List the claims; check none."),
    out="Folder for CLAIMS.md, claims.json and claims.parquet. If it holds the results of earlier "
    f"runs, the new results are merged into them.  [default: {DEFAULT_OUT}]",
    columns=None,
    rare=("seed",),
    without=("names", "tier", "ledger"),
    results={
        "help": "Folder with the tables of experiments, on which claims about trained models are "
        "checked; its subfolders are searched too.  [default: the folder of --out if it exists, "
        f"else {DEFAULT_OUT}]",
    },
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
    **arguments: Any,
) -> int:
    """Check the paper's claims, or only the named ones, and give each a verdict.

    The ledger is the package's list of claims. It has a rule for each, with its history, that turns
    one or several measured numbers into the verdict. A beginning such as noniid stands for all
    claims below it, and so does the title of a section. If you check a claim again, the files in
    --out keep the result with more random draws (--deep makes the most, --quick the fewest). With
    equally many draws and another seed, a claim on which the seeds disagree is inconclusive. An
    earlier result whose observation is not stored in points/ is replaced.

    \b
    Examples:
      loca-theory verify --quick
      loca-theory verify theorem1.order condition-u
      loca-theory verify noniid --deep --out ledger
    """
    if quick and deep:
        raise click.UsageError("--quick and --deep exclude each other")
    from loca_theory.claims import load_ledger
    from loca_theory.claims.results import read_entries
    from loca_theory.claims.rules import Verdict
    from loca_theory.cli.commands.claim_tables import print_claims, print_ledger

    ledger = load_ledger()
    try:
        claims = ledger.find(names)
    except InvalidArgumentError as error:
        raise click.UsageError(
            str(error).replace("loca_theory.claims.load_ledger()", "`loca-theory verify --list`")
        ) from error
    if only_list:
        rows = [{name: getattr(claim, name) for name in _LISTED} for claim in claims]
        emit({"claims": rows}, lambda: print_ledger(claims), common, "claims")
        return 0
    if common.folder.is_dir():
        arguments["results"] = arguments["results"] or common.folder
    # Read before measuring, so that a CLAIMS.md of another origin is refused at once.
    earlier = read_entries(common.folder, ledger)
    tier = "quick" if quick else "deep" if deep else "default"
    if not quick:  # a check may take minutes, and progress in a log is a line per minute
        common.note(f"checking {counted(len(claims), 'claim')} at the tier {tier}")
    result = _measure(names or None, common, tier=tier, ledger=ledger, **arguments).beside(earlier)
    try:
        written = result.save(common.folder)
    except ResourceError:
        if common.out:
            raise
        common.note("CLAIMS.md and claims.json were not written")
        written = []
    document = {**result.to_json(), "files": [str(path) for path in written]}
    columns = list(result.claims[0].row())
    emit(document, lambda: print_claims(result, is_whole=not names), common, "claims", columns)
    _note_earlier(result, earlier, common)
    if written:
        common.note_written(written)
    for entry in result.claims:
        if entry.changed:
            expected = entry.claim.expected_verdict
            common.note(f"{entry.id} is {entry.verdict}, but the ledger expects {expected}")
    if divided := ", ".join(entry.id for entry in result.claims if entry.seeds_disagree):
        common.note(f"inconclusive, because seeds disagree: {divided}")
    if lost := ", ".join(entry.id for entry in result.claims if entry.lost):
        common.note(f"inconclusive, though the ledger expects a decision: {lost}")
    verdicts = [entry.verdict for entry in result.claims]
    absent = verdicts.count(Verdict.NOT_RUN)
    if absent and len(verdicts) > 1:
        common.note(f"{absent} not run: tables are missing; CLAIMS.md says how to make them")
    if as_expected:
        result.require_expected()
    return _NOT_SUPPORTED if strict and Verdict.NOT_SUPPORTED in verdicts else 0


def _measure(names: tuple[str, ...] | None, common: Common, **arguments: Any) -> VerificationResult:
    from loca_theory.claims import verify

    try:
        with running(common, "checking", "claims") as runner:
            return verify(names, runner=runner, **arguments)
    except Exception as error:
        notes = getattr(error, "__notes__", None)
        if isinstance(error, LocaTheoryError) or not notes:
            raise
        raise click.ClickException(
            f"{notes[-1]}: {error}; --debug shows where. Fix the "
            "check, or name other claims, whose finished observations are stored"
        ) from error


def _note_earlier(result: VerificationResult, earlier: Sequence[Entry], common: Common) -> None:
    """Print notes on earlier observations whose verdicts the files keep, or that are not stored."""
    merged = {entry.id: entry for entry in result.joined(earlier).claims}
    for new in result.claims:
        old = merged[new.id]
        if old.verdict is not new.verdict:
            how = f"tier {old.cell.tier}, seed {old.cell.seed}{', older code' if old.stale else ''}"
            common.note(f"CLAIMS.md keeps an earlier verdict on {new.id}: {old.verdict} ({how})")
    unbacked = [entry for entry in earlier if not entry.backed]
    if unbacked:
        retained = sum(merged[entry.id] is entry for entry in unbacked)
        text = f"no observation is stored in {common.folder}/points for {len(unbacked)} earlier "
        text += f"results: {len(unbacked) - retained} measured again and replaced"
        text += f", {retained} kept until you verify them again" if retained else ""
        common.note(text)

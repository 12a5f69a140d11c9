"""Check claims as a sweep: each claim is one cell, whose result is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from loca_theory import _arguments
from loca_theory._lookup import member
from loca_theory.claims.entries import DEFAULT_RESULTS, Entry
from loca_theory.claims.estimates import Tier
from loca_theory.claims.ledger import Ledger, load_ledger
from loca_theory.claims.observation import ClaimCell, measure
from loca_theory.claims.results import VerificationResult
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import Runner, chosen_runner
from loca_theory.sweeps.tables import find_tables

# Workers start at once for a check that takes longer, which would otherwise run alone.
_LONG_S = 10.0


def verify(
    names: str | Iterable[str] | None = None,
    *,
    tier: Tier | str = "default",
    seed: int = 0,
    results: str | Path | None = None,
    ledger: Ledger | str | Path | None = None,
    runner: Runner | None = None,
) -> VerificationResult:
    """Check claims of the paper, and give each a verdict.

    >>> verify("parseval.unitary", tier="quick").claims[0].verdict
    <Verdict.SUPPORTED: 'supported'>

    Args:
        names: Name of a claim, or several; a beginning such as ``theorem1`` stands for all claims
            below it, and so does the title of a section. None for all claims.
        tier: How much work each check does: ``quick``, ``default`` or ``deep``.
        seed: Root seed.
        results: Folder of the experiments' tables for the empirical claims, searched with its
            subfolders; None for ``loca-results`` if that folder exists.
        ledger: A ledger, or the path of a ledger file; None for the package's own.
        runner: How to run: the workers, and the store of finished measurements.

    Raises:
        InvalidArgumentError: a claim or the tier is unknown, or names is empty.
        LedgerError: the ledger cannot be read, or a claim's check does not exist or does not take
            the claim's arguments.
        ResourceError: the folder of tables does not exist, or a file that a check needs is damaged.
    """
    chosen = () if names is None else _arguments.as_tuple(names)
    if names is not None and not chosen:
        raise InvalidArgumentError("names is empty; name a claim, or omit names for all claims")
    ledger = ledger if isinstance(ledger, Ledger) else load_ledger(ledger)
    tier, seed = member(Tier, "tier", tier), _arguments.whole_number("seed", seed)
    runner = chosen_runner(runner)
    claims, folder = ledger.find(chosen), folder_of_tables(results)
    for claim in claims:
        claim.function()
    cells = [
        ClaimCell(claim, tier, seed, tuple(_digests(folder, claim.tables)))
        # The longest start first, so that none runs alone at the end.
        for claim in sorted(claims, key=lambda claim: -claim.cost)
    ]
    is_long = tier is not Tier.QUICK and any(claim.cost > _LONG_S for claim in claims)
    measurements = runner.run(cells, partial(measure, results=folder), is_long=is_long)
    entries = dict[str, Entry]()
    for cell, measured in zip(cells, measurements, strict=True):
        claim = cell.claim
        # With the version, which the code of a later process may not share.
        finished = replace(cell, measured_by=cell.version)
        entries[claim.id] = Entry(finished, measured, ledger.error_rate(claim))
    ids = [claim.id for claim in claims]
    grid = {"claims": ids, "tier": tier.value, "comparisons": ledger.comparisons}
    return VerificationResult(
        manifest=manifest(grid=grid, seed=seed),
        ledger=ledger,
        claims=tuple(entries[name] for name in ids),
    )


def folder_of_tables(results: str | Path | None) -> Path | None:
    """The folder of tables: the given one or, if it exists, the experiments' default."""
    default = Path(DEFAULT_RESULTS)
    if results is None:
        return default if default.is_dir() else None
    folder = _arguments.path("results", results)
    if not folder.is_dir():
        raise ResourceError(
            f"there is no folder {folder}; give the folder of the experiments' tables, "
            'or leave out results="..."'
        )
    return folder


def _digests(folder: Path | None, tables: Iterable[str]) -> Iterator[str]:
    """The digests of the files of tables."""
    for path in dict.fromkeys(table.path for table in find_tables(folder, tables)):
        try:
            yield f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"
        except OSError as error:
            raise ResourceError(f"cannot read {path}: {error.strerror or error}") from error

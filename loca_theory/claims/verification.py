"""Check claims as a sweep: each claim is one cell, whose result is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from loca_theory import _arguments
from loca_theory._lookup import member
from loca_theory.claims.entries import DEFAULT_RESULTS, Entry
from loca_theory.claims.ledger import Claim, Ledger
from loca_theory.claims.measurement import Measurement, Tier
from loca_theory.claims.observation import ClaimCell, measure
from loca_theory.claims.reader import load_ledger
from loca_theory.claims.results import VerificationResult
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import find_tables
from loca_theory.sweeps.runner import DEFAULT_RUNNER


def verify(
    names: str | Iterable[str] | None = None,
    *,
    tier: Tier | str = Tier.DEFAULT,
    seed: int = 0,
    results: str | Path | None = None,
    ledger: Ledger | str | Path | None = None,
    runner: Runner = DEFAULT_RUNNER,
) -> VerificationResult:
    """Check claims of the paper, and give each a verdict.

    >>> verify("parseval.unitary", tier="quick").claims[0].verdict
    <Verdict.SUPPORTED: 'supported'>

    Args:
        names: Name of a claim, or several; a name that ends in a dot stands for all claims that
            begin with it. None for all claims.
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
        msg = "names is empty; name a claim, or omit names for all claims"
        raise InvalidArgumentError(msg)
    return Verification(
        ledger if isinstance(ledger, Ledger) else load_ledger(ledger),
        chosen,
        member(Tier, "tier", tier),
        seed,
        None if results is None else _arguments.path("results", results),
    ).run(_arguments.instance("runner", runner, Runner))


@dataclass(frozen=True)
class Verification:
    """The claims to check, and the settings of their checks.

    Attributes:
        ledger: The ledger.
        names: Names of claims; empty for all.
        tier: How much work each check does.
        seed: Root seed.
        results: Folder of the experiments' tables, searched with its subfolders; None for
            ``loca-results`` if that folder exists.
    """

    ledger: Ledger = field(default_factory=load_ledger)
    names: tuple[str, ...] = ()
    tier: Tier = Tier.DEFAULT
    seed: int = 0
    results: Path | None = None

    def __post_init__(self) -> None:
        self.ledger.find(self.names)
        _arguments.fields_to_int(self, "seed")
        if self.results is None and Path(DEFAULT_RESULTS).is_dir():
            object.__setattr__(self, "results", Path(DEFAULT_RESULTS))
        if self.results is not None and not self.results.is_dir():
            msg = f"there is no folder {self.results}; give the folder of the experiments' tables, "
            msg += 'or leave out results="..."'
            raise ResourceError(msg)

    def run(self, runner: Runner = DEFAULT_RUNNER) -> VerificationResult:
        """Check every claim."""
        claims = self.ledger.find(self.names)
        for claim in claims:
            claim.function()
        # The longest start first, so that none runs alone at the end.
        cells = [self._cell(claim) for claim in sorted(claims, key=lambda claim: -claim.cost)]
        found = runner.run(cells, partial(measure, results=self.results))
        entries = {
            cell.claim.id: Entry(
                cell.claim,
                Measurement.from_json(one),
                self.ledger.error_rate(cell.claim),
                self.tier,
                self.seed,
                one["seconds"],
                cell.tables,
                cell.version,
            )
            for cell, one in zip(cells, found, strict=True)
        }
        grid = {
            "claims": [claim.id for claim in claims],
            "tier": self.tier.value,
            "comparisons": self.ledger.comparisons,
        }
        return VerificationResult(
            manifest=manifest(grid=grid, seed=self.seed),
            ledger=self.ledger,
            claims=tuple(entries[claim.id] for claim in claims),
        )

    def _cell(self, claim: Claim) -> ClaimCell:
        tables = (_digest(path) for path in find_tables(self.results, claim.tables))
        return ClaimCell(claim, self.tier, self.seed, tuple(tables))


def _digest(path: Path) -> str:
    try:
        return f"{path.name}:{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise ResourceError(msg) from error

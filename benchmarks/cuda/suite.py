"""The tests that need a card, each a row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.cuda.session import PoisonedError, Row, Session

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(session: Session) -> None:
    """Run them in this process, one after the other."""
    files = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"\b(cuda|device)\b", path.read_text(encoding="utf-8"))
        and path.parent.name != "benchmarks"
    ]
    # What the numbers of the other checks rest on comes first.
    first = ("transforms", "adapters")
    files.sort(key=lambda path: (path.parent.name not in first, str(path)))
    if session.tiny:
        files = [path for path in files if path.parent.name == "transforms"][:2]
    run(session, files)


def run(session: Session, paths: Sequence[Path]) -> None:
    """Run the tests of these files that are marked ``cuda``.

    Raises:
        PoisonedError: a test has lost the device for this process.
    """
    import pytest

    reporter = Reporter(session)
    # Options of the suite that need plugins are not taken over, and a warning of another version of
    # a library is not an error here.
    options = ["-o", "addopts=", "--import-mode=importlib", "-m", "cuda", "-W", "default", "-ra"]
    options += [
        "--continue-on-collection-errors",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
    ]
    options += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-o", "log_cli=false"]
    code = pytest.main([*options, *map(str, paths)], plugins=[reporter])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        session.note(f"pytest gave up with {code!r}; see suite.log")
    if reporter.lost:
        raise PoisonedError(reporter.lost)


class Reporter:
    """A plugin of pytest that says each test as a row, and stops when the device is lost."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[str, Row] = {}
        self._stop: Any = None
        self.lost: str | None = None

    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Leave out what an earlier process has done."""
        self._stop = session
        items[:] = [item for item in items if item.nodeid not in self._session.done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a row."""
        if report.failed and report.nodeid not in self._session.done:
            row = {"key": report.nodeid, "outcome": "not collected"}
            row["error"] = _last_line(report.longrepr)
            self._session.finish(row)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test is under way."""
        self._session.starts(nodeid, limit=60.0)
        self._rows[nodeid] = {"key": nodeid, "outcome": "passed", "took_s": 0.0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Its set-up, call or tear-down is over."""
        row = self._rows[report.nodeid]
        row["took_s"] += report.duration
        if report.failed or (report.skipped and row["outcome"] == "passed"):
            row["outcome"] = "failed" if report.failed else "skipped"
            row["error" if report.failed else "reason"] = _last_line(report.longrepr)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """The row is complete."""
        row = self._rows.pop(nodeid)
        self._session.finish(row)
        if self._session.left() <= 0:
            self._session.note("the tests were stopped: their time was over")
            self._stop.shouldstop = "no time left"
        if row["outcome"] == "failed" and self._session.is_cuda:
            try:
                torch.cuda.synchronize()
            except Exception as error:
                self.lost = str(error)
                self._stop.shouldstop = "the device is lost"


def _last_line(text: object) -> str:
    if isinstance(text, tuple):  # where, which line, why
        return str(text[-1])[:300]
    crash = getattr(text, "reprcrash", None)
    if crash is not None:
        return str(crash.message).strip().partition("\n")[0][:300]
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""

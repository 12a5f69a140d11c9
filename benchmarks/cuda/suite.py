"""Run the tests that need a card; each test is a row."""

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
    """Run the tests in this process, one after the other."""
    files = [
        path
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"\b(cuda|device)\b", path.read_text(encoding="utf-8"))
        and path.parent.name != "benchmarks"
    ]
    # Tests of the code that the other checks depend on come first.
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
    # Drop the suite's own options, some of which need plugins, and do not turn warnings of other
    # library versions into errors.
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
    """A pytest plugin that reports each test as a row, and stops when the device is lost."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[str, Row] = {}
        self._stop: Any = None
        self.lost: str | None = None

    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """Skip tests that an earlier process has run."""
        self._stop = session
        items[:] = [item for item in items if item.nodeid not in self._session.done]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a file that cannot be imported as a row."""
        if report.failed and report.nodeid not in self._session.done:
            row = {"key": report.nodeid, "outcome": "not collected"}
            row["error"] = _last_line(report.longrepr)
            self._session.finish(row)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Report that a test is started."""
        self._session.starts(nodeid, limit=60.0)
        self._rows[nodeid] = {"key": nodeid, "outcome": "passed", "took_s": 0.0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the result of the test's set-up, call or tear-down."""
        row = self._rows[report.nodeid]
        row["took_s"] += report.duration
        if report.failed or (report.skipped and row["outcome"] == "passed"):
            row["outcome"] = "failed" if report.failed else "skipped"
            row["error" if report.failed else "reason"] = _last_line(report.longrepr)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Report the complete row, and stop at the time limit or if the device is lost."""
        row = self._rows.pop(nodeid)
        self._session.finish(row)
        if self._session.left() <= 0:
            self._session.note("the tests were stopped: time limit reached")
            self._stop.shouldstop = "no time left"
        if row["outcome"] == "failed" and self._session.is_cuda:
            try:
                torch.cuda.synchronize()
            except Exception as error:
                self.lost = str(error)
                self._stop.shouldstop = "the device is lost"


def _last_line(text: object) -> str:
    if isinstance(text, tuple):  # file, line, reason
        return str(text[-1])[:300]
    crash = getattr(text, "reprcrash", None)
    if crash is not None:
        return str(crash.message).strip().partition("\n")[0][:300]
    lines = [line.strip() for line in str(text).splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""

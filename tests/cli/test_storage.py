"""Disks that are full or read-only, and results of another version: earlier ones stay intact."""

import errno
import hashlib
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from loca_theory.expressivity.monte_carlo import ErrorCell

COMMAND = ("simulate", "--r", 2, "--methods", "D", "--engine", "monte-carlo", "--draws", 25)
COMMAND = (*COMMAND, "--quiet", "--jobs", 1)
FIRST = (*COMMAND, "--K", 16, "--out")
SWEEP = (*COMMAND, "--K", "20..40..4", "--out")


def digests(folder):
    """Of every file below a folder."""
    return {
        path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@contextmanager
def full_disk(free):
    """A disk that takes so many texts more, and of the next one the first half."""
    write = Path.write_text

    def write_text(path, text, *arguments, **options):
        nonlocal free
        free -= 1
        if free >= 0:
            return write(path, text, *arguments, **options)
        write(path, text[: len(text) // 2], *arguments, **options)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_text", write_text)
        yield


def test_a_full_disk_is_one_line_and_leaves_earlier_results_to_be_used(cli, here):
    assert cli(*FIRST, "kept").code == 0
    before = digests(here / "kept")
    with full_disk(free=2):
        done = cli(*SWEEP, "kept")
    assert (done.code, done.out) == (1, "")
    reason = re.escape(os.strerror(errno.ENOSPC))
    assert re.fullmatch(rf"loca-theory: cannot write kept/[^\n]+: {reason}; [^\n]+\n", done.err)
    after = digests(here / "kept")
    finished = after.keys() - before.keys()
    assert before.items() <= after.items()
    assert {path.suffix for path in finished} == {".json"}, "nothing half-written is left"
    assert len(finished) == 2

    # Room again: what was finished is not computed anew, and the table is that of a fresh folder.
    times = {path: (here / "kept" / path).stat().st_mtime_ns for path in finished}
    assert cli(*SWEEP, "kept").code == 0
    assert times == {path: (here / "kept" / path).stat().st_mtime_ns for path in finished}
    assert cli(*SWEEP, "fresh").code == 0
    table = "simulate.parquet"
    assert (here / "kept" / table).read_bytes() == (here / "fresh" / table).read_bytes()


def test_a_read_only_disk_is_one_line(cli, here, monkeypatch):
    assert cli(*FIRST, "kept").code == 0
    before = digests(here / "kept")

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    done = cli(*SWEEP, "kept")
    assert (done.code, done.out) == (1, "")
    reason = re.escape(os.strerror(errno.EROFS))
    assert re.fullmatch(rf"loca-theory: cannot write to kept/points: {reason}; [^\n]+\n", done.err)
    assert digests(here / "kept") == before


def test_results_of_another_version_stay_and_are_not_used(cli, here, monkeypatch):
    sweep = ("simulate", "--K", "16,20", "--r", 2, "--methods", "D", "--engine", "monte-carlo")
    sweep = (*sweep, "--draws", 2, "--jobs", 1, "--format", "csv")
    first = cli(*sweep)
    points = here / "loca-results" / "points"
    files = {path: hashlib.sha256(path.read_bytes()).digest() for path in points.iterdir()}

    monkeypatch.setattr(ErrorCell, "packages", ("loca_theory.sweeps",))
    second = cli(*sweep)
    assert (second.code, second.out) == (0, first.out)
    found = re.search(
        r"note: (\d+) results in \S+points were computed by another version", second.err
    )
    assert int(found[1]) == len(files)
    assert "neither used nor deleted" in second.err
    for path, digest in files.items():
        assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert len(list(points.iterdir())) == 2 * len(files)


def test_commands_that_share_an_experiment_are_of_one_version(cli, here):
    """correlate draws its methods at independence as simulate does, in the same folder."""
    sizes = ("--K", 16, "--r", 2, "--jobs", 1)
    simulate = ("simulate", *sizes, "--methods", "D", "--engine", "monte-carlo", "--draws", 2)
    correlate = ("correlate", *sizes, "--structures", "ar1", "--rho", "0,0.2", "--draws", 2)
    for command in (simulate, (*correlate, "--null-draws", 400), (*simulate, "--seed", 1)):
        done = cli(*command)
        assert done.code == 0
        assert "another version" not in done.err
    stored = {path.name.rpartition("-")[0] for path in (here / "loca-results/points").iterdir()}
    assert sum(name.startswith("expressivity.monte-carlo@") for name in stored) == 1

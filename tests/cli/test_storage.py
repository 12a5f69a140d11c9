"""Disks that are full or read-only, and results of another version: earlier ones stay intact."""

import hashlib
import re
import shlex
import subprocess
import sys

import pytest

from loca_theory.sweeps import ResultStore

# In a user and mount namespace of its own: a small file system at ./disk, and then a script.
MOUNT = "mount -t tmpfs -o size=400k tmpfs disk && "
FIRST = "simulate --K 64 --r 2 --draws 64 --quiet --jobs 1 --out disk/kept"
SWEEP = (
    "correlate --K 16 --r 2 --draws 400 --structures ar1 --rho 0..0.4..0.05 --quiet --jobs 1 "
    "--out disk/kept"
)


def isolated(script):
    return subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT + script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def disk(here, command):
    """Run a shell script on a small file system; RUN in it stands for ``loca-theory``."""
    (here / "disk").mkdir()
    if sys.platform != "linux" or isolated("true").returncode:
        pytest.skip("no file system can be mounted here: needs Linux with user namespaces")

    def run(script):
        return isolated(script.replace("RUN", shlex.join(command)))

    return run


SUM = "(cd disk/kept && find . -name 'simulate*' -o -name 'reduced*' | sort | xargs sha256sum)"


def test_a_full_disk_is_one_line_and_leaves_earlier_results(disk):
    done = disk(f"RUN {FIRST} >/dev/null && {SUM} && echo -- && RUN {SWEEP}; echo $?; {SUM}")
    before, _, after = done.stdout.partition("--\n")
    code, _, after = after.partition("\n")
    assert re.fullmatch(
        r"loca-theory: cannot write [^\n]+: No space left on device; [^\n]+\n", done.stderr
    )
    assert (code, after) == ("1", before)
    assert "simulate.parquet" in before


def test_a_read_only_disk_is_one_line(disk):
    done = disk(
        f"RUN {FIRST} >/dev/null && mount -o remount,ro disk && RUN {SWEEP}; echo $?; {SUM}"
    )
    assert re.fullmatch(
        r"loca-theory: cannot write to disk/kept/points: Read-only file system; [^\n]+\n",
        done.stderr,
    )
    assert done.stdout.startswith("1\n")
    assert "simulate.parquet" in done.stdout


def test_what_a_full_disk_kept_is_used_when_there_is_room_again(disk):
    done = disk(
        f"RUN {SWEEP} 2>/dev/null; mount -o remount,size=9m disk && ls disk/kept/points | wc -l && "
        f"RUN {SWEEP} >/dev/null && cp -r disk/kept/correlate-rows.parquet . && rm -r disk/kept && "
        f"RUN {SWEEP} >/dev/null && cmp correlate-rows.parquet disk/kept/correlate-rows.parquet"
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_results_of_another_version_stay_and_are_not_used(cli, here, monkeypatch):
    grid = ("--K", 16, "--r", 2, "--draws", 2, "--structures", "ar1", "--rho", "0,0.1")
    sweep = ("correlate", *grid, "--jobs", 1, "--format", "csv")
    first = cli(*sweep)
    points = here / "loca-results" / "points"
    files = {path: hashlib.sha256(path.read_bytes()).digest() for path in points.iterdir()}

    class Other(ResultStore):
        def __init__(self, folder, version):
            super().__init__(folder, version[::-1])

    monkeypatch.setattr("loca_theory.cli.stores.ResultStore", Other)
    second = cli(*sweep)
    assert (second.code, second.out) == (0, first.out)
    found = re.search(
        r"note: (\d+) results in \S+points were computed by another version", second.err
    )
    assert int(found[1]) == len(files)
    assert "left there and not used" in second.err
    for path, digest in files.items():
        assert hashlib.sha256(path.read_bytes()).digest() == digest
    assert len(list(points.iterdir())) == 2 * len(files)

"""Killed or interrupted at any moment, the same command finishes with the same bytes."""

import os
import random
import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
SMALL = ("simulate", "--K", 16, "--r", "1,2", "--methods", "D", "--engine", "monte-carlo")
SMALL = (*SMALL, "--draws", 100, "--jobs", 1)
LARGE = ("simulate", "--K", "256", "--r", "4,8", "--methods", "R,D,F2", "--engine", "monte-carlo")
ENDLESS = 100_000
KILLED = -signal.SIGKILL


def assert_finished(here, folder):
    """It holds what it would have held undisturbed."""
    for name in ("simulate.parquet", "simulate.png", "simulate.pdf"):
        assert (here / folder / name).read_bytes() == (here / "undisturbed" / name).read_bytes()


def test_a_run_killed_again_and_again_ends_with_the_same_bytes(cli, here, killed):
    assert cli(*SMALL, "--out", "undisturbed").code == 0
    # The first before anything is there; then while points, the table and pictures are written.
    found = killed([(n, "again") for n in (1, 8, 12, 16, 0)], *SMALL)
    assert found.codes[0] == KILLED
    assert found.codes.count(KILLED) >= 3
    assert found.codes[-1] == 0, found.err
    assert "recomputed" not in found.err, "no half-written file stands under a point's name"
    for before, after in zip(found.points, found.points[1:], strict=False):
        assert before <= after, "finished points are never lost"
    assert len(found.points[-1]) == 4
    assert_finished(here, "again")


@pytest.mark.deep
def test_a_run_killed_at_any_change_of_a_file_can_be_finished(cli, here, killed):
    assert cli(*SMALL, "--out", "undisturbed").code == 0
    numbers = range(1, 41)
    found = killed([(n, f"at-{number}") for number in numbers for n in (number, 0)], *SMALL)
    assert found.codes[1::2] == [0] * len(numbers), found.err
    survived = found.codes[::2].index(0)
    assert found.codes[::2] == [KILLED] * survived + [0] * (len(numbers) - survived)
    assert survived > 20
    assert "recomputed" not in found.err
    for number in numbers:
        assert_finished(here, f"at-{number}")


@pytest.mark.deep
def test_a_run_with_workers_killed_again_and_again_ends_with_the_same_bytes(cli, here, killed):
    command = (*LARGE, "--draws", 3000)
    assert cli(*command, "--jobs", 1, "--out", "undisturbed").code == 0
    moments = random.Random(2)
    kills = [(moments.randint(1, 60), "again") for _ in range(20)]
    found = killed([*kills, (0, "again")], *command, "--jobs", 2)
    assert found.codes.count(KILLED) >= 10
    assert found.codes[-1] == 0, found.err
    assert "recomputed" not in found.err
    for before, after in zip(found.points, found.points[1:], strict=False):
        assert before <= after
    assert_finished(here, "again")


# A shell has its background jobs, and all that they start, ignore Ctrl-C.
HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


@pytest.fixture
def start(here, command):
    """Start ``loca-theory ARGUMENTS`` as the leader of a process group, and end what is left."""
    python, option, script = command
    started = []

    def run(*arguments):
        process = subprocess.Popen(
            [python, option, HEEDING + script, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def finished_points(folder):
    points = folder / "points"
    return len(list(points.glob("*.json"))) if points.is_dir() else 0


def wait_until(condition):
    """Look again and again; the limit is for a command that hangs."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("jobs", "as_a_terminal", "after"),
    [
        (1, False, 1),
        (2, True, 1),  # while workers start
        pytest.param(1, True, 5, marks=pytest.mark.deep),
        pytest.param(2, True, 400, marks=pytest.mark.deep),
        pytest.param(2, False, 400, marks=pytest.mark.deep),
    ],
)
def test_ctrl_c_is_one_line_and_the_rest_can_follow(here, start, jobs, as_a_terminal, after):
    """A terminal sends the signal to workers as well; none of them may add a word."""
    command = (*LARGE, "--draws", ENDLESS, "--jobs", jobs, "--out", "results")
    process = start(*command)
    wait_until(lambda: finished_points(here / "results") >= after or process.poll() is not None)
    (os.killpg if as_a_terminal else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    said = re.fullmatch(
        r"loca-theory: interrupted: (\d+) of (\d+) points are stored; "
        r"run again to compute the rest\n",
        err,
    )
    assert said, err
    # The signal may come between the storing of a point and its counting.
    assert finished_points(here / "results") - int(said[1]) in (0, 1)
    assert int(said[2]) == 3 * ENDLESS // 25
    assert not (here / "results" / "simulate.parquet").exists()

"""Killed or interrupted at any moment, the same command finishes with the same bytes."""

import os
import random
import re
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
LARGE = ("simulate", "--K", "256", "--r", "4,8", "--curves", "R,D,F2", "--engine", "monte-carlo")
ENDLESS = 100_000


@pytest.fixture
def start(here, command):
    """Start ``loca-theory ARGUMENTS`` as the leader of a process group, and end what is left."""
    started = []

    def run(*arguments):
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
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
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.002)


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    "kills", [3, pytest.param(20, marks=pytest.mark.deep)], ids=["3 kills", "20 kills"]
)
def test_a_run_killed_again_and_again_ends_with_the_same_bytes(here, start, jobs, kills):
    draws = 300 * kills
    points = 3 * draws // 25
    command = (*LARGE, "--draws", draws)
    begin = time.monotonic()
    undisturbed = start(*command, "--jobs", 1, "--out", "undisturbed")
    _, err = undisturbed.communicate()
    duration = time.monotonic() - begin
    assert undisturbed.returncode == 0, err

    moments = random.Random(jobs)
    killed, finished = 0, [0]
    for attempt in range(kills):
        process = start(*command, "--jobs", jobs, "--out", "killed")
        if attempt % 3 == 1:  # at any moment: while it starts, reads, computes or draws
            time.sleep(moments.uniform(0.1, 1.1) * duration)
        else:  # a few points further than the last one came
            aim = finished[-1] + moments.randint(1, points // kills)
            wait_until(
                lambda process=process, aim=aim: (
                    finished_points(here / "killed") >= aim or process.poll() is not None
                )
            )
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        finished.append(finished_points(here / "killed"))
    assert killed >= 1
    assert finished == sorted(finished), "finished points are never lost"

    process = start(*command, "--jobs", jobs, "--out", "killed")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "recomputed" not in err, "no half-written file stands under a point's name"
    assert finished_points(here / "killed") == points
    for name in ("simulate.parquet", "simulate.png", "simulate.pdf"):
        assert (here / "killed" / name).read_bytes() == (here / "undisturbed" / name).read_bytes()


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("whole_group", [False, True], ids=["the process", "as a terminal does"])
@pytest.mark.parametrize("after", [1, 5], ids=["early", "later"])
def test_ctrl_c_is_one_line_and_the_rest_can_follow(here, start, jobs, whole_group, after):
    """A terminal sends the signal to workers as well; none of them may add a word.

    Early is while they start.
    """
    command = (*LARGE, "--draws", ENDLESS, "--jobs", jobs, "--out", "results")
    process = start(*command)
    wait_until(lambda: finished_points(here / "results") >= after or process.poll() is not None)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, ""), err
    said = re.fullmatch(
        r"loca-theory: interrupted: (\d+) of (\d+) points are stored; "
        r"run the same command again to finish\n",
        err,
    )
    assert said, err
    # The signal may come between the storing of a point and its counting.
    assert finished_points(here / "results") - int(said[1]) in (0, 1)
    assert int(said[2]) == 3 * ENDLESS // 25
    assert not (here / "results" / "simulate.parquet").exists()

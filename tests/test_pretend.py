"""Tests for GPUs run on a pretended device, in a process of their own, whose torch is patched."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def outcomes(*arguments):
    """How many tests of any device pass, and are skipped, where the device is the stand-in."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-m",
            "cuda",
            "-p",
            "no:cacheprovider",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "LOCA_THEORY_PRETEND": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    counts = {outcome: int(count) for count, outcome in re.findall(r"(\d+) (\w+)", done.stdout)}
    return counts["passed"], counts.get("skipped", 0)


def test_a_step_on_a_device_that_is_not_the_cpu_is_right_and_waits_for_nothing():
    # Every implementation in every phase, three prune-and-regrow searches, the layers together, a
    # search each way.
    kinds = "waits or wait or central or reselect"
    passed, _ = outcomes("tests/adapters/test_devices.py", "-k", kinds)
    assert passed >= 9 + 3 + 1 + 8


@pytest.mark.deep
def test_all_that_runs_on_a_gpu_runs_on_a_device_that_is_not_the_cpu():
    passed, skipped = outcomes("tests")
    # Skipped are tests that ask CUDA itself for memory, plans, messages or a second device.
    assert skipped < 12 < 300 < passed

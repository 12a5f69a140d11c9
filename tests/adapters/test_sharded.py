"""Two processes with parameters shared out by FSDP2 learn what one does from both batches."""

import subprocess
import sys

import pytest
import torch

from .searching import close, same
from .sharded_training import CASES
from .test_distributed import learn
from .two_processes import TIMEOUT, WORLD

pytestmark = pytest.mark.deep


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes of accelerate's launcher found in all cases."""
    folder = tmp_path_factory.mktemp("fsdp")
    command = [sys.executable, "-m", f"{__package__}.sharded_training", str(folder), *CASES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * TIMEOUT)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.mark.parametrize("case", CASES)
def test_parameters_shared_out_learn_what_whole_ones_do(case, folder):
    alone = learn(case, CASES[case], range(WORLD))
    # A hundred operations on numbers of unit size a step, and the sum of two gradients.
    tolerance = 1e4 * torch.finfo(torch.float64).eps
    for rank in range(WORLD):
        found = torch.load(folder / f"{case}.{rank}")
        for mine, theirs in zip(found["indices"], alone["indices"], strict=True):
            assert same(mine, theirs)
        for mine, theirs in zip(found["learned"], alone["learned"], strict=True):
            close(mine, theirs, tolerance)
    assert not same(alone["indices"][0], alone["indices"][-1])

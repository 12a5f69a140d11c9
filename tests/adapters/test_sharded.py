"""Two processes with shared-out parameters learn what one learns from the batches of both."""

import subprocess
import sys

import pytest
import torch

from .searching import close, same
from .sharded_training import CASES_OF, KINDS, learn
from .two_processes import TIMEOUT, WORLD

pytestmark = pytest.mark.deep


def launch(kind, folder, *names):
    """Run the cases in two processes by accelerate's launcher."""
    command = [sys.executable, "-m", f"{__package__}.sharded_training", kind, str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=6 * TIMEOUT)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def found_by(tmp_path_factory):
    """What a process found in a case: a function, which starts the processes when necessary."""
    folders = {}

    def found(kind, case, rank):
        if kind not in folders:
            folder = tmp_path_factory.mktemp(kind)
            launch(kind, folder, *CASES_OF[kind])
            folders[kind] = folder
        return torch.load(folders[kind] / f"{case}.{rank}")

    return found


@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind, cases in CASES_OF.items() for case in cases]
)
def test_parameters_shared_out_learn_what_whole_ones_do(kind, case, found_by):
    if kind != "fsdp":
        pytest.importorskip("deepspeed")
    _, dtype = KINDS[kind]
    alone = learn(case, range(WORLD), dtype=dtype)
    # A hundred operations on numbers of unit size a step, and the sum of two gradients.
    tolerance = 1e4 * torch.finfo(dtype).eps
    for rank in range(WORLD):
        found = found_by(kind, case, rank)
        for mine, theirs in zip(found["indices"], alone["indices"], strict=True):
            assert same(mine, theirs)
        for mine, theirs in zip(found["learned"], alone["learned"], strict=True):
            close(mine.to(dtype), theirs, tolerance)
        for mine, theirs in zip(found["locations"], alone["locations"], strict=True):
            for u, v in zip(mine, theirs, strict=True):
                torch.testing.assert_close(u, v, rtol=0, atol=1e-5)  # float32
    assert not same(alone["indices"][0], alone["indices"][-1])

"""Two processes with shared-out parameters learn what one learns from the batches of both."""

import subprocess
import sys

import pytest
import torch

from .searching import close, same
from .sharded_training import CASES, learn
from .two_processes import TIMEOUT, WORLD

pytestmark = pytest.mark.deep


def launch(kind, folder, *names):
    """Run the cases in two processes by accelerate's launcher."""
    options = ["--cpu", "--num_processes", str(WORLD), "--num_machines", "1"]
    options += ["--main_process_port", "0", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *options, "-m"]
    command += ["tests.adapters.sharded_training", kind, str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * TIMEOUT)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def by_fsdp(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    launch("fsdp", folder)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_layers_shared_out_by_fsdp2_learn_what_whole_ones_do(case, by_fsdp):
    alone = learn(case, range(WORLD))
    for rank in range(WORLD):
        found = torch.load(by_fsdp / f"{case}.{rank}")
        for mine, theirs in zip(found["indices"], alone["indices"], strict=True):
            assert same(mine, theirs)
        for name in ("locations", "learned"):
            flat = [t for part in (found, alone) for t in part[name]]
            if name == "locations":
                flat = [torch.cat([u.flatten() for u in t]) for t in flat if t]
            half = len(flat) // 2
            for mine, theirs in zip(flat[:half], flat[half:], strict=True):
                close(mine, theirs)

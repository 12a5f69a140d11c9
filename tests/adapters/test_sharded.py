"""Two processes with shared-out parameters learn what one learns from the batches of both."""

import subprocess
import sys

import pytest
import torch

from loca_theory.adapters import AlternatingSchedule, LocationTraining

from .searching import batches, close, same, small, spectra
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


@pytest.fixture
def mesh(tmp_path):
    """Of one process."""
    rendezvous = f"file://{tmp_path}/rendezvous"
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
    yield torch.distributed.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("set_to_none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("reduced", [None, torch.float64], ids=["as they are", "in another dtype"])
@pytest.mark.parametrize("search", ["central", "central, jointly", "swap-raw"])
def test_gradients_that_are_not_yet_shared_out_accumulate(search, reduced, set_to_none, mesh):
    """By ``set_requires_gradient_sync``, after a step that was skipped."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    found = []
    for is_sharded in (False, True):
        model = small(dtype=torch.float32)
        schedule = AlternatingSchedule(1, 5, None, joint="jointly" in search, as_printed=True)
        training = LocationTraining(model, schedule, search=search.split(",")[0], automatic=False)
        for layer in spectra(model) if search == "swap-raw" else ():
            layer.search.start_recording(0.0, 0)
        if is_sharded:
            policy = MixedPrecisionPolicy(reduce_dtype=reduced)
            for module in (model[0], model[2], model):
                fully_shard(module, mesh=mesh, mp_policy=policy)
        for step, shares_out in enumerate((True, False, False, True)):
            if is_sharded:
                model.set_requires_gradient_sync(shares_out)
            x, y = (part.float() for part in batches(1, step)[0])
            (model(x) - y).square().mean().backward()
            if step == 0:
                model.zero_grad(set_to_none)
        training.before_step()
        searches = [layer.search for layer in spectra(model)]
        if search == "swap-raw":
            found.append([one._statistics.gradient() for one in searches])
        else:
            found.append([one.locations.grad for one in searches])
    # A hundred operations on numbers of unit size.
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs, 1e4 * torch.finfo(torch.float32).eps)

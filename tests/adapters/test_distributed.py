"""Two processes learn what one learns from the batches of both."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from loca_theory.adapters import AlternatingSchedule, LoCALinear, follow
from loca_theory.adapters.search.sharding import whole

from . import two_processes
from .searching import EXCHANGES, all_indices, close, normal, offsets, same, same_state
from .two_processes import WORLD

SCHEDULE = AlternatingSchedule(2, 3, 20, recorded_steps=2)
JOINT = AlternatingSchedule(2, 3, 20, joint=True)
STEPS = 24

FOUND = {"find_unused_parameters": True}
SKIPS = {"ddp": FOUND, "skips": True}
CASES = {
    "central": {},
    "central, looks for unused": {"ddp": FOUND},
    "central, unused by one": SKIPS,
    "central, jointly": {"schedule": JOINT},
    "central, gradient": {"start": "gradient"},
    "reselect, unused by one": SKIPS,
    "reselect, unused by one, float32": {**SKIPS, "dtype": torch.float32},
} | {
    f"{search}, {start}": {"start": start}
    for search in EXCHANGES
    for start in ("random", "gradient")
}
QUICK = ["central, unused by one", "swap, gradient", "reselect, unused by one"]


def tiers(names):
    return [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.deep, id=name)
        for name in names
    ]


class Gate(nn.Module):
    """Two layers, of which the second can be left out of a step."""

    def __init__(self, **options):
        super().__init__()
        self.first = LoCALinear(nn.Linear(6, 8), 9, seed=1, **options)
        self.second = LoCALinear(nn.Linear(8, 8), 7, seed=2, **options)
        self.last = nn.Linear(8, 3)

    def forward(self, x, *, skips=False):
        x = torch.tanh(self.first(x))
        return self.last(x if skips else x + torch.tanh(self.second(x)))


def optimizer_of(model, *, adam=False):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if adam:
        return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def learn(case, options, ranks, wrap=lambda model: model):
    """Train as one of the processes, wrapped for several, or alone as all of them."""
    start, dtype = options.get("start", "random"), options.get("dtype", torch.float64)
    adam, parts = options.get("adam", False), options.get("parts", 1)
    torch.manual_seed(0)
    inner = Gate(
        zero_init=start == "gradient",
        schedule=options.get("schedule", SCHEDULE),
        location_search=case.split(",")[0],
        init_locations=start,
        location_lr=0.2 if adam else 5.0,
    ).to(dtype)
    follow(inner)
    run = wrap(inner)
    optimizer = optimizer_of(inner, adam=adam)
    follow(inner, optimizer)
    x, y = (part.to(dtype) for part in data())
    history = {"phases": [], "indices": [], "offsets": []}
    for step in range(STEPS):
        history["phases"].append(inner.first.spectrum.phase)
        optimizer.zero_grad()
        for rank in ranks:
            # Every other step, so that a wrong factor is not one that AdamW divides out.
            skips = "skips" in options and rank == 1 and step % 2 == 1
            for part in range(parts):
                rows = slice(part, None, parts)
                loss = (run(x[step, rank, rows], skips=skips) - y[step, rank, rows]).square().mean()
                loss.div(len(ranks) * parts).backward()
        optimizer.step()
        history["indices"].append(all_indices(inner))
        history["offsets"].append([whole(offset) for offset in offsets(inner)])
    learned = [whole(p) for n, p in inner.named_parameters() if not n.endswith("offset")]
    return {**history, "learned": [p.clone() for p in learned]}


def data():
    return normal(STEPS, WORLD, 4, 6, seed=7), normal(STEPS, WORLD, 4, 3, seed=8)


def learn_some(rank, folder, names):
    for case in names:
        options = CASES[case]
        wrap = partial(DistributedDataParallel, **options.get("ddp", {}))
        torch.save(learn(case, options, [rank], wrap), f"{folder}/{case}.{rank}")


@pytest.fixture(scope="module")
def results_of(tmp_path_factory):
    """A function that gives the results of both processes in a case; it starts them when needed."""
    folders = {}

    def results(case):
        quick = case in QUICK
        if quick not in folders:
            folders[quick] = tmp_path_factory.mktemp("two")
            names = [name for name in CASES if (name in QUICK) == quick]
            two_processes.run(__name__, "learn_some", folders[quick], names)
        return [torch.load(folders[quick] / f"{case}.{rank}") for rank in range(WORLD)]

    return results


# Torch's own, about parameters found to be used when asked to look for unused ones.
@pytest.mark.filterwarnings("ignore:.*find_unused_parameters=True was specified")
@pytest.mark.parametrize("case", tiers(CASES))
def test_two_processes_learn_what_one_does_from_both_batches(case, results_of):
    """To the bit: both add up the gradients of two batches, and halve them, which is exact."""
    first, second = results_of(case)
    alone = learn(case, CASES[case], range(WORLD))
    assert same_state(first, second)
    assert same_state(first, alone)
    for indices in zip(*alone["indices"], strict=True):
        assert not torch.equal(indices[0], indices[-1])
        assert len(torch.unique(indices[-1], dim=0)) == len(indices[-1])
    assert alone["phases"][-1] is None
    assert [len(offsets) for offsets in alone["offsets"]][-1] == 0


# --- parameters shared out by FSDP2 ---

SHARDED = {
    "central": {},
    "central, adam": {"adam": True},
    "central, jointly, accumulated": {"schedule": JOINT, "parts": 2},
    "central, accumulated": {"parts": 2},
    "central, gradient": {"start": "gradient"},
    "reselect": {},
    "reselect, adam": {"adam": True},
    "swap, gradient": {"start": "gradient"},
    "swap-raw": {},
}


def shard(model):
    """Share out each layer, and the rest."""
    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)
    return model


def learn_sharded(rank, folder):
    for case, options in SHARDED.items():
        torch.save(learn(case, options, [rank], shard), f"{folder}/{case}.{rank}")


@pytest.fixture(scope="module")
def shared_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    two_processes.run(__name__, "learn_sharded", folder)
    return folder


@pytest.mark.deep
@pytest.mark.parametrize("case", SHARDED)
def test_parameters_shared_out_learn_what_whole_ones_do(case, shared_out):
    alone = learn(case, SHARDED[case], range(WORLD))
    # A hundred operations on numbers of unit size a step, and the sum of two gradients.
    tolerance = 1e4 * torch.finfo(torch.float64).eps
    for rank in range(WORLD):
        results = torch.load(shared_out / f"{case}.{rank}")
        assert same_state(results["indices"], alone["indices"])
        for ours, theirs in zip(results["learned"], alone["learned"], strict=True):
            close(ours, theirs, tolerance)
    assert not same(alone["indices"][0], alone["indices"][-1])

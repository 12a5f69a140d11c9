"""Two processes learn what one learns from the batches of both."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from loca_theory.adapters import AlternatingSchedule, LoCALinear, LocationTraining, parameter_groups
from loca_theory.adapters.gradient_statistics import GradientStatistics

from . import two_processes
from .searching import EXCHANGES, all_indices, close, normal, same
from .two_processes import WORLD

SCHEDULE = AlternatingSchedule(2, 3, 20, recorded_steps=2)
STEPS = 24

FOUND = {"find_unused_parameters": True}
CASES = {
    # Locations move by so much that some of them meet.
    "central": {"zero_init": False, "location_lr": 8.0},
    "central, looks for unused": {"zero_init": False, "location_lr": 8.0, "ddp": FOUND},
    "central, gradient": {"init_locations": "gradient"},
    "reselect, unused by one": {"zero_init": False, "ddp": FOUND, "skips": True},
    "reselect, unused by one, float32": {
        "zero_init": False, "ddp": FOUND, "skips": True, "dtype": torch.float32,
    },
} | {
    f"{search}, {start}": {"init_locations": start, "zero_init": start == "gradient"}
    for search in EXCHANGES for start in ("random", "gradient")
}  # fmt: skip
QUICK = ["central", "swap, gradient", "reselect, unused by one"]


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


def learn(case, x, y, rank=None):
    """Train by momentum, which is smooth in the gradients: as one of two processes, or alone."""
    options = dict(CASES[case])
    skips = options.pop("skips", False) and rank == 1
    ddp, dtype = options.pop("ddp", {}), options.pop("dtype", torch.float64)
    location_lr = options.pop("location_lr", 0.05)
    torch.manual_seed(0)
    inner = Gate(location_search=case.split(",")[0], **options).to(dtype)
    training = LocationTraining(inner, SCHEDULE)
    run = inner if rank is None else DistributedDataParallel(inner, **ddp)
    groups = parameter_groups(inner, lr=0.05, location_lr=location_lr, weight_decay=0.01)
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    phases, trace = [], []
    for of_x, of_y in zip(x.to(dtype), y.to(dtype), strict=True):
        phases.append(training.phase)
        optimizer.zero_grad()
        (run(of_x, skips=skips) - of_y).square().mean().backward()
        optimizer.step()
        trace.append(all_indices(inner))
    learned = [p.detach().clone() for n, p in inner.named_parameters() if "locations" not in n]
    return {"phases": phases, "trace": trace, "learned": learned}


def data_of_both():
    return normal(STEPS, WORLD, 4, 6, seed=7), normal(STEPS, WORLD, 4, 3, seed=8)


def learn_some(names, rank, folder):
    x, y = (part[:, rank] for part in data_of_both())
    for case in names:
        torch.save(learn(case, x, y, rank), f"{folder}/{case}.{rank}")


def quick_ones(rank, folder):
    learn_some(QUICK, rank, folder)


def other_ones(rank, folder):
    learn_some([case for case in CASES if case not in QUICK], rank, folder)


@pytest.fixture(scope="module")
def found_by(tmp_path_factory):
    """What the processes found in a case: a function, which starts them when they are needed."""
    folders = {}

    def found(case):
        name = "quick_ones" if case in QUICK else "other_ones"
        if name not in folders:
            folder = tmp_path_factory.mktemp("two")
            two_processes.run(__name__, name, folder)
            folders[name] = folder
        return [torch.load(folders[name] / f"{case}.{rank}") for rank in range(WORLD)]

    return found


# Torch's own, about parameters found to be used when asked to look for unused ones.
@pytest.mark.filterwarnings("ignore:.*find_unused_parameters=True was specified")
@pytest.mark.parametrize("case", tiers(CASES))
def test_both_processes_have_the_same_layers(case, found_by):
    first, second = found_by(case)
    assert first["phases"] == second["phases"] == [SCHEDULE.phase(t) for t in range(STEPS)]
    for mine, theirs in zip(first["trace"], second["trace"], strict=True):
        assert same(mine, theirs)
    assert same(first["learned"], second["learned"])
    for number in range(2):
        assert not torch.equal(first["trace"][0][number], first["trace"][-1][number])


@pytest.mark.filterwarnings("ignore:.*find_unused_parameters=True was specified")
@pytest.mark.parametrize("case", tiers(name for name in CASES if "by one" not in name))
def test_two_processes_learn_what_one_does_from_both_batches(case, found_by):
    x, y = data_of_both()
    alone, found = learn(case, x.flatten(1, 2), y.flatten(1, 2)), found_by(case)[0]
    for mine, theirs in zip(found["trace"], alone["trace"], strict=True):
        assert same(mine, theirs)
    # They add up their halves of a gradient in another order: 24 steps of 1e-16, and momentum.
    for mine, theirs in zip(found["learned"], alone["learned"], strict=True):
        close(mine, theirs, 1e-9)


def test_locations_of_this_training_meet_and_are_given_locations_of_their_own():
    """Else the comparisons above would not see how two processes settle them."""
    x, y = data_of_both()
    trace = learn("central", x.flatten(1, 2), y.flatten(1, 2))["trace"]
    for number in range(2):
        indices = [at_step[number] for at_step in trace]
        met = [len(torch.unique(at_step, dim=0)) < len(at_step) for at_step in indices]
        assert any(met)
        assert not met[-1]


def exchange_by_statistics(x, g):
    """What is asked of the statistics of a batch, and where components go by them."""
    seen = GradientStatistics((8, 6), 1.5, x.dtype, x.device)
    seen.add(x, g)
    torch.manual_seed(0)
    layer = LoCALinear(nn.Linear(6, 8), 9, zero_init=False, location_search="swap")
    layer = layer.to(x)
    layer.spectrum.start_recording(0.0, 0)
    layer(x).backward(g)
    if torch.distributed.is_initialized():
        seen.gather()
    assert layer.spectrum.prune_and_regrow().any()
    return [
        t.cpu()
        for t in (
            seen.gradient(),
            seen.predicted_decreases(use_curvature=True),
            layer.spectrum.indices,
        )
    ]


def statistics_of_both():
    return normal(WORLD, 5, 6, seed=7), normal(WORLD, 5, 8, seed=8)


def fraction_statistics(rank, folder):
    x, g = (part[rank].to(two_processes.device_of(rank)) for part in statistics_of_both())
    torch.save(exchange_by_statistics(x, g), f"{folder}/{rank}")


@pytest.mark.parametrize(
    "device",
    [pytest.param("cpu", marks=pytest.mark.deep), pytest.param("cuda", marks=pytest.mark.cuda)],
)
def test_statistics_of_two_processes_are_those_of_both_batches(device, tmp_path):
    if device == "cuda" and torch.cuda.device_count() < WORLD:
        pytest.skip("torch sees one CUDA device, and each of the two processes needs its own")
    if device == "cuda" and not torch.distributed.is_nccl_available():
        pytest.skip("torch is built without NCCL, by which CUDA devices add up")
    two_processes.run(__name__, "fraction_statistics", tmp_path, device)
    first, second = (torch.load(tmp_path / str(rank)) for rank in range(WORLD))
    x, g = statistics_of_both()
    # The loss of both is the mean of theirs.
    *alone, indices = exchange_by_statistics(x.flatten(0, 1), g.flatten(0, 1) / WORLD)
    assert same(first, second)
    assert torch.equal(first[2], indices)
    for mine, theirs in zip(first, alone, strict=False):
        close(mine, theirs)

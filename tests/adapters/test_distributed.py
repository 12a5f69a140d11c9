"""Two processes learn what one learns from the batches of both."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from loca_theory.adapters import AlternatingSchedule, LoCALinear, LocationTraining, parameter_groups

from .two_processes import WORLD

STEPS = 14
LOCATION_LR = 8.0  # enough for places to move, and to meet, within the schedule
SCHEDULE = AlternatingSchedule(2, 3, 10)

# Two processes add up their halves of a gradient in another order: 14 steps of 6e-8, and momentum.
ROUNDING = 1e-6


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        LoCALinear(nn.Linear(6, 8), 9, zero_init=False, seed=1),
        nn.Tanh(),
        LoCALinear(nn.Linear(8, 8), 7, zero_init=False, seed=2),
        nn.Tanh(),
        nn.Linear(8, 3),
    )


def data():
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(STEPS, WORLD, 4, 6, generator=generator)
    return x, torch.randn(STEPS, WORLD, 4, 3, generator=generator)


def learn(wrapped, batches):
    """Train by momentum, which is smooth in the gradients, and tell the phases and the places."""
    inner = small()
    training = LocationTraining(inner, SCHEDULE)
    run = wrapped(inner)
    groups = parameter_groups(inner, lr=0.05, location_lr=LOCATION_LR, weight_decay=0.01)
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    phases, trace = [], []
    for x, y in zip(*batches, strict=True):
        phases.append(training.phase)
        optimizer.zero_grad()
        (run(x) - y).square().mean().backward()
        optimizer.step()
        trace.append([copy.deepcopy(inner[k].spectrum.places) for k in (0, 2)])
    return {
        "phases": phases,
        "trace": trace,
        "parameters": {
            name: p.detach().clone()
            for name, p in inner.named_parameters()
            if not name.endswith("locations")
        },
        "places": [inner[k].spectrum.places.clone() for k in (0, 2)],
        "increments": [inner[k].increment().detach() for k in (0, 2)],
    }


def one_of_two(rank, folder):
    x, y = data()
    for find_unused in (False, True):
        wrapped = partial(DistributedDataParallel, find_unused_parameters=find_unused)
        found = learn(wrapped, (x[:, rank], y[:, rank]))
        torch.save(found, f"{folder}/{rank}-{find_unused}.pt")


@pytest.fixture(scope="module")
def folder(in_two_processes, tmp_path_factory):
    """What both processes found."""
    path = tmp_path_factory.mktemp("two")
    assert in_two_processes(one_of_two, path) == [0, 0]
    return path


@pytest.fixture(scope="module")
def alone():
    """What one process finds from both batches."""
    x, y = data()
    return learn(lambda inner: inner, (x.flatten(1, 2), y.flatten(1, 2)))


by_search = pytest.mark.parametrize(
    "find_unused", [False, True], ids=["all used", "looks for unused"]
)


def test_places_move_meet_and_are_settled_by_one_process(alone):
    assert alone["phases"] == [SCHEDULE.phase(t) for t in range(STEPS)]
    assert set(alone["phases"]) == {"coefficients", "locations", None}
    for k in range(2):
        met = [len(torch.unique(places[k], dim=0)) < len(places[k]) for places in alone["trace"]]
        assert any(met)
        assert not met[-1]
        assert not torch.equal(alone["trace"][0][k], alone["places"][k])


@by_search
def test_both_processes_have_the_same_layers(find_unused, folder):
    first, second = (torch.load(folder / f"{rank}-{find_unused}.pt") for rank in range(WORLD))
    assert first["phases"] == second["phases"]
    for mine, theirs in zip(first["trace"], second["trace"], strict=True):
        assert all(map(torch.equal, mine, theirs))
    assert first["parameters"].keys() == second["parameters"].keys()
    for name, mine in first["parameters"].items():
        assert torch.equal(mine, second["parameters"][name]), name


@by_search
def test_two_processes_learn_what_one_does_from_both_batches(find_unused, folder, alone):
    found = torch.load(folder / f"0-{find_unused}.pt")
    assert found["phases"] == alone["phases"]
    for mine, theirs in zip(found["trace"], alone["trace"], strict=True):
        assert all(map(torch.equal, mine, theirs))
    assert found["parameters"].keys() == alone["parameters"].keys()
    close = {"rtol": ROUNDING, "atol": ROUNDING}
    for name, expected in alone["parameters"].items():
        torch.testing.assert_close(found["parameters"][name], expected, **close)
    for mine, theirs in zip(found["increments"], alone["increments"], strict=True):
        torch.testing.assert_close(mine, theirs, **close)

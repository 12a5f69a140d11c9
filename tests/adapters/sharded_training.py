"""Training in processes that share out the parameters; a script for accelerate's launcher.

Each process writes what it found in each case to the folder::

    accelerate launch --cpu --num_processes 2 -m tests.adapters.sharded_training fsdp FOLDER
"""

import sys

import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, LocationTraining
from loca_theory.adapters.search.sharding import whole

from .searching import all_indices, locations
from .test_distributed import SCHEDULE, STEPS, Gate, data
from .two_processes import WORLD

JOINT = AlternatingSchedule(2, 3, 20, joint=True)
CASES = {
    "central": {},
    "central, adam": {"optimizer": "adam"},
    "central, jointly, accumulated": {"schedule": JOINT, "parts": 2},
    "central, accumulated": {"parts": 2},
    "central, gradient": {"start": "gradient"},
    "reselect": {},
    "reselect, adam": {"optimizer": "adam"},
    "swap, gradient": {"start": "gradient"},
    "swap-raw": {},
}


def optimizer_of(model, kind):
    parameters = [p for p in model.parameters() if p.requires_grad]
    if kind == "adam":
        return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1)
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)


def learn(case, ranks, wrap=None):
    """Train as one of the processes, or alone as all of them."""
    options = {"start": "random", "schedule": SCHEDULE, "parts": 1, "optimizer": "sgd"}
    options |= CASES[case]
    torch.manual_seed(0)
    model = Gate(zero_init=options["start"] == "gradient").double()
    training = LocationTraining(
        model,
        options["schedule"],
        search=case.split(",")[0],
        init_locations=options["start"],
        location_lr=0.2,
    )
    if wrap is not None:
        wrap(model)
    optimizer, (x, y) = optimizer_of(model, options["optimizer"]), data()
    found = {"indices": [], "locations": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in ranks:
            for part in range(options["parts"]):
                rows = slice(part, None, options["parts"])
                loss = (model(x[step, rank, rows]) - y[step, rank, rows]).square().mean()
                loss.div(len(ranks) * options["parts"]).backward()
        optimizer.step()
        found["indices"].append(all_indices(model))
        found["locations"].append(locations(model))
    assert training.is_over
    return {**found, "learned": [whole(p) for p in model.parameters()]}


def shard(model: nn.Module) -> None:
    """Share out each layer by FSDP2, and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)


def main(kind, folder, *names):
    from accelerate import PartialState

    state = PartialState(cpu=True)
    assert state.num_processes == WORLD
    for case in names or CASES:
        found = learn(case, [state.process_index], shard)
        torch.save(found, f"{folder}/{case}.{state.process_index}")
    state.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])

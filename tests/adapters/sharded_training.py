"""Training in processes that share out the parameters by FSDP2; a script for accelerate's launcher.

As a script it starts two processes by accelerate's launcher for CPUs (``accelerate launch --cpu``
starts one), and each writes what it found in each case to the folder::

    python -m tests.adapters.sharded_training FOLDER central reselect
"""

import sys

import torch

from loca_theory.adapters import AlternatingSchedule, follow
from loca_theory.adapters.search.sharding import whole

from .searching import all_indices
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


def learn(case, ranks, *, shards=False):
    """Train as one of the processes that share out the parameters, or alone as all of them."""
    options = {"start": "random", "schedule": SCHEDULE, "parts": 1, "optimizer": "sgd"}
    options |= CASES[case]
    torch.manual_seed(0)
    model = Gate(
        zero_init=options["start"] == "gradient",
        schedule=options["schedule"],
        location_search=case.split(",")[0],
        init_locations=options["start"],
        location_lr=0.2 if options["optimizer"] == "adam" else 5.0,
    ).double()
    follow(model)
    if shards:
        shard(model)
    optimizer = optimizer_of(model, options["optimizer"])
    follow(model, optimizer)
    x, y = data()
    found = {"indices": []}
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in ranks:
            for part in range(options["parts"]):
                rows = slice(part, None, options["parts"])
                loss = (model(x[step, rank, rows]) - y[step, rank, rows]).square().mean()
                loss.div(len(ranks) * options["parts"]).backward()
        optimizer.step()
        found["indices"].append(all_indices(model))
    assert not model.first.spectrum.is_searching
    learned = {n: whole(p) for n, p in model.named_parameters() if p.requires_grad}
    return {**found, "learned": [p for n, p in learned.items() if not n.endswith("offset")]}


def shard(model):
    """Share out each layer by FSDP2, and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)


def learn_some(folder, *names):
    """As one of the processes: learn the cases, and write what was found."""
    from accelerate import PartialState

    rank, state = torch.distributed.get_rank(), PartialState(cpu=True)
    assert state.num_processes == WORLD
    for case in names:
        torch.save(learn(case, [rank], shards=True), f"{folder}/{case}.{rank}")
    state.destroy_process_group()


if __name__ == "__main__":
    from accelerate import debug_launcher

    debug_launcher(learn_some, tuple(sys.argv[1:]), num_processes=WORLD)

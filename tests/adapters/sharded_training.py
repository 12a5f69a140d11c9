"""Training in processes that share out the parameters by FSDP2; a script for accelerate's launcher.

As a script it starts two processes by accelerate's launcher for CPUs (``accelerate launch --cpu``
starts one), and each writes what it found in each case to the folder::

    python -m tests.adapters.sharded_training FOLDER central reselect
"""

import sys

import torch

from loca_theory.adapters import AlternatingSchedule

from .test_distributed import learn
from .two_processes import WORLD

JOINT = AlternatingSchedule(2, 3, 20, joint=True)
CASES = {
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
    """Share out each layer by FSDP2, and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)
    return model


def learn_some(folder, *names):
    """As one of the processes: learn the cases, and write what was found."""
    from accelerate import PartialState

    rank, state = torch.distributed.get_rank(), PartialState(cpu=True)
    assert state.num_processes == WORLD
    for case in names:
        torch.save(learn(case, CASES[case], [rank], shard), f"{folder}/{case}.{rank}")
    state.destroy_process_group()


if __name__ == "__main__":
    from accelerate import debug_launcher

    debug_launcher(learn_some, tuple(sys.argv[1:]), num_processes=WORLD)

"""Training in processes that share out the parameters; a script for accelerate's launcher.

As a script it starts two processes by accelerate's launcher for CPUs (``accelerate launch --cpu``
starts one), and each writes what it found in each case to the folder::

    python -m tests.adapters.sharded_training fsdp FOLDER central reselect
"""

import os
import sys

import torch

from loca_theory.adapters import AlternatingSchedule, LocationTraining, follow_deepspeed
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


def learn(case, ranks, wrap=None, dtype=torch.float64):
    """Train as one of the processes, or alone as all of them.

    ``wrap`` shares out the parameters, and returns the engine that trains them, if there is one.
    """
    options = {"start": "random", "schedule": SCHEDULE, "parts": 1, "optimizer": "sgd"}
    options |= CASES[case]
    torch.manual_seed(0)
    model = Gate(zero_init=options["start"] == "gradient").to(dtype)
    training = LocationTraining(
        model,
        options["schedule"],
        search=case.split(",")[0],
        init_locations=options["start"],
        location_lr=0.2,
    )
    optimizer = optimizer_of(model, options["optimizer"]) if wrap is not shard else None
    engine = None if wrap is None else wrap(model, optimizer, training, options["parts"])
    optimizer = optimizer or optimizer_of(model, options["optimizer"])
    x, y = (part.to(dtype) for part in data())
    found = {"indices": [], "locations": []}
    for step in range(STEPS):
        if engine is None:
            optimizer.zero_grad()
        for rank in ranks:
            for part in range(options["parts"]):
                rows = slice(part, None, options["parts"])
                run = engine or model
                loss = (run(x[step, rank, rows]) - y[step, rank, rows]).square().mean()
                if engine is None:
                    loss.div(len(ranks) * options["parts"]).backward()
                else:
                    engine.backward(loss)
                    engine.step()
        if engine is None:
            optimizer.step()
        found["indices"].append(all_indices(model))
        found["locations"].append(locations(model))
    assert training.is_over
    return {**found, "learned": [whole(p) for p in model.parameters() if p.requires_grad]}


def shard(model, *_):
    """Share out each layer by FSDP2, and the rest."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (WORLD,))
    for module in (model.first, model.second, model):
        fully_shard(module, mesh=mesh)


def zero(stage):
    """A function that gives a model to DeepSpeed."""

    def give(model, optimizer, training, parts):
        import deepspeed

        # Over gloo alone: its operator for shared memory has to be compiled.
        sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": parts,
            "gradient_clipping": 0.0,  # by default it clips to norm 1
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 8},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
        }
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        follow_deepspeed(training, engine)
        return engine

    return give


SINGLE = torch.float32
KINDS = {
    "fsdp": (shard, torch.float64),
    "zero2": (zero(2), SINGLE),
    "zero3": (zero(3), SINGLE),
}

# AdamW of a flat parameter counts also the steps in which coefficients are not learned.
IN_ZERO = [case for case in CASES if "adam" not in case]
CASES_OF = {"fsdp": list(CASES), "zero2": IN_ZERO, "zero3": IN_ZERO}


def learn_some(kind, folder, *names):
    """As one of the processes: learn the cases, and write what was found."""
    from accelerate import PartialState

    rank = torch.distributed.get_rank()
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "DS_ACCELERATOR": "cpu"}
    state = PartialState(cpu=True)
    assert state.num_processes == WORLD
    wrap, dtype = KINDS[kind]
    for case in names:
        torch.save(learn(case, [rank], wrap, dtype), f"{folder}/{case}.{rank}")
    state.destroy_process_group()


if __name__ == "__main__":
    from accelerate import debug_launcher

    debug_launcher(learn_some, tuple(sys.argv[1:]), num_processes=WORLD)

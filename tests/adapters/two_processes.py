"""Two processes that train together, over gloo on this machine."""

import datetime
import os
import warnings

import torch

WORLD = 2
TIMEOUT = 120


def run(target, folder):
    """Run ``target(rank, folder)`` as rank 0 and 1; returns how they ended, and none goes on."""
    spawn = torch.multiprocessing.get_context("spawn")
    arguments = [(rank, target, str(folder)) for rank in range(WORLD)]
    processes = [spawn.Process(target=_as_one_of_two, args=each) for each in arguments]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(TIMEOUT)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    return [process.exitcode for process in processes]


def _as_one_of_two(rank, target, folder):
    warnings.simplefilter("error")
    # Torch's own, about parameters found to be used when asked to look for unused ones.
    warnings.filterwarnings("ignore", module="torch")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=TIMEOUT / 2),
    )
    try:
        target(rank, folder)
    finally:
        torch.distributed.destroy_process_group()

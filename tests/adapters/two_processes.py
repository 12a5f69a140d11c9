"""Two processes that train together, over gloo on this machine."""

import datetime
import os
import socket
import sys
import warnings
from importlib import import_module

import torch

WORLD = 2
# So long that no machine is too slow: it ends what hangs.
TIMEOUT = 600


def run(module, name, folder):
    """Run the module's function of this name, of rank and folder, as rank 0 and 1.

    Returns how they ended; none goes on.
    """
    spawn = torch.multiprocessing.get_context("spawn")
    arguments = [(rank, module, name, str(folder)) for rank in range(WORLD)]
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


def _as_one_of_two(rank, module, name, folder):
    sys.modules["peft"] = None  # is slow to import, and not asked for
    target = getattr(import_module(module), name)
    warnings.simplefilter("error")
    # Torch's own, about parameters found to be used when asked to look for unused ones.
    warnings.filterwarnings("ignore", module="torch")
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
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

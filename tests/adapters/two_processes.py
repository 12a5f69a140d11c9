"""Two processes that train together on this machine, over gloo."""

import datetime
import os
import socket
import sys
import warnings
from importlib import import_module

import torch

WORLD = 2
# In seconds; so long that no machine is too slow: it ends what hangs.
TIMEOUT = 300


def run(module, name, folder, *arguments):
    """Run the module's function of rank, folder and more: here as 0, in a process as 1."""
    other = torch.multiprocessing.get_context("spawn").Process(
        target=_as_the_other, args=(module, name, str(folder), *arguments)
    )
    other.start()
    try:
        _as_one_of_two(0, getattr(sys.modules[module], name), folder, *arguments)
        other.join(TIMEOUT)
    finally:
        if other.is_alive():
            other.kill()
            other.join()
    assert other.exitcode == 0


def _as_the_other(module, name, folder, *arguments):
    sys.modules["peft"] = None  # is slow to import, and not asked for
    target = getattr(import_module(module), name)
    warnings.simplefilter("error")
    # Torch's own, about parameters found to be used when asked to look for unused ones.
    warnings.filterwarnings("ignore", module="torch")
    _as_one_of_two(1, target, folder, *arguments)


def _as_one_of_two(rank, target, folder, *arguments):
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=TIMEOUT),
    )
    try:
        target(rank, folder, *arguments)
    finally:
        torch.distributed.destroy_process_group()

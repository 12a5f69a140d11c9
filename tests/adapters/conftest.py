"""How the tests of this room run: small models by one thread, or in two processes."""

import pytest
import torch

from . import two_processes

pytest.register_assert_rewrite(f"{__package__}.searching")


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny layers wait for threads most of the time
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def in_two_processes():
    """Run ``target(rank, folder)`` as rank 0 and 1; returns how they ended, and none goes on."""
    if not torch.distributed.is_available():
        pytest.skip("torch without distributed")
    return two_processes.run

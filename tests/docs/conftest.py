"""What the tests of the documentation share."""

import pytest
import torch


@pytest.fixture
def one_thread():
    """Small matrices gain nothing from threads, and lose where cores are few."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

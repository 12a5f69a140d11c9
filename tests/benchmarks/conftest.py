"""A session whose lines are heard, and a card that only pretends to be there."""

import io
import json
import time

import pytest
import torch

from benchmarks.cuda.session import Session


class Heard(Session):
    """A rehearsal whose lines can be read."""

    def lines_said(self):
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    def rows(self):
        """By key, each as it was said last."""
        return {line["row"]["key"]: line["row"] for line in self.lines_said() if "row" in line}


@pytest.fixture
def session(tmp_path):
    return Heard(tmp_path, io.StringIO(), time.monotonic() + 600.0, "cpu", tiny=True)


@pytest.fixture
def card(monkeypatch):
    """Torch's CUDA calls as if there were a card; the work itself is done on the CPU."""
    monkeypatch.setattr(Session, "is_cuda", True)
    held = iter(range(0, 10**9, 2**20))
    answers = {
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "memory_allocated": lambda *_: next(held),
        "max_memory_allocated": lambda *_: next(held) + 2**24,
        "reset_peak_memory_stats": lambda *_: None,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda _: None,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    return monkeypatch

"""Contexts that disable autocast and TF32; the switch of TF32 is one for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch


@contextmanager
def float32_products(device: torch.device) -> Iterator[None]:
    """Disable autocast, and CUDA's TF32, in this context, whatever the session has set.

    Products are then computed in the dtype of their factors. A backward pass through these
    products runs under the settings that hold when it runs.
    """
    with without_autocast(device), _without_tf32() if device.type == "cuda" else nullcontext():
        yield


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Disable autocast in this context; TF32 stays as the session has set it."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


@contextmanager
def _without_tf32() -> Iterator[None]:
    switch = torch.backends.cuda.matmul
    # torch 2.9 added fp32_precision, and refuses to read allow_tf32 once the two disagree.
    is_new = hasattr(switch, "fp32_precision")
    name, value = ("fp32_precision", "ieee") if is_new else ("allow_tf32", False)
    with _switch_lock:
        _switched.append(getattr(switch, name))
        setattr(switch, name, value)
    try:
        yield
    finally:
        with _switch_lock:
            # Until the last context has ended, this is the value that the others need.
            setattr(switch, name, _switched[0] if len(_switched) == 1 else value)
            _switched.pop()


# The values that the active contexts found; the first is the session's own. All threads share the
# switch, and in a backward pass each GPU has its own thread: the last to leave restores the
# session's value. The lock protects only these contexts: if the session has set allow_tf32, another
# thread that reads it meanwhile gets torch's error that the two names disagree.
_switched: list[bool | str] = []
_switch_lock = Lock()

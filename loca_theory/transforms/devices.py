"""Selection of devices by name, and errors of devices in one line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from loca_theory.errors import InvalidArgumentError, ResourceError


def resolve_device(name: str) -> str:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` into a device that exists and computes.

    ``auto`` is the current CUDA device if it can compute, otherwise the CPU. If there is a CUDA
    device that cannot compute, a warning is given.
    """
    match = isinstance(name, str) and re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", name)
    if not match:
        raise InvalidArgumentError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N")
    if name == "cpu":
        return name
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        if name == "auto":
            return "cpu"
        # torch reports a driver that is too old only by a warning.
        reason = f" ({_reason(said[0].message)})" if said else ""
        raise ResourceError(f'no CUDA device is available to torch{reason}; choose device="cpu"')
    if match[1] is not None and int(match[1]) >= count:
        raise ResourceError(
            f"there is no {name}: this machine has {count} CUDA device(s), numbered from 0"
        )
    device = "cuda" if name == "auto" else name
    obstacle = _obstacle(device)
    if obstacle and name == "auto":
        warnings.warn(f"{obstacle}; the CPU is used instead", stacklevel=2)
        return "cpu"
    if obstacle:
        raise ResourceError(f'{obstacle}, or choose device="cpu"')
    return device


@contextmanager
def device_memory(computation: str, device: torch.device | str, way_out: str) -> Iterator[None]:
    """Turn an out-of-memory error in this context into one line that names the computation."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        sizes = _sizes(error)
        reason = f": {sizes}" if sizes else ""
        raise ResourceError(
            f"{computation} does not fit into the memory of {device}{reason}; {way_out}"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that the device ran out of memory, in any library."""
    return bool(re.search(r"out of memory|ALLOC_FAILED|OutOfMemory", f"{type(error)} {error}"))


def _obstacle(name: str) -> str | None:
    """Why a device cannot compute, and what to do; None if it can. Only an attempt shows it."""
    try:
        torch.zeros(1, device=name).add_(1.0).cpu()
    except RuntimeError as error:
        reason = _reason(error)
        if is_out_of_memory(error) or "busy or unavailable" in reason:
            return f"{name} is in use ({reason}); end other processes that use it"
        way_out = "install a build of torch that supports it"
        return f"torch cannot compute on {name} ({reason}); {way_out}"
    return None


def _reason(said: object) -> str:
    """An error or a warning in short."""
    return _sizes(said) or re.split(r"\n|\. |\.$", str(said).strip(), maxsplit=1)[0]


def _sizes(error: object) -> str:
    """The memory that is needed and that is free, as far as the error names them."""
    match = re.search(r"Tried to allocate (.+?B)\b(?:.* of which (.+?B) is)?", str(error))
    if not match:
        return ""
    return f"it needs {match[1]} more" + (f", and {match[2]} are free" if match[2] else "")

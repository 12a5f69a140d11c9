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
        msg = f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N"
        raise InvalidArgumentError(msg)
    if name == "cpu":
        return name
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        if count == 0:
            return "cpu"
        if obstacle := _obstacle("cuda"):
            warnings.warn(f"{obstacle[0]}; the CPU is used instead", stacklevel=2)
            return "cpu"
        return "cuda"
    if count == 0:
        # torch reports a driver that is too old only by a warning.
        reason = f" ({_first_sentence(said[0].message)})" if said else ""
        msg = f'no CUDA device is available to torch{reason}; choose device="cpu"'
        raise ResourceError(msg)
    if match[1] is not None and int(match[1]) >= count:
        msg = f"there is no {name}: this machine has {count} CUDA device(s), numbered from 0"
        raise ResourceError(msg)
    if obstacle := _obstacle(name):
        reason, way_out = obstacle
        msg = f'{reason}; {way_out}, or choose device="cpu"'
        raise ResourceError(msg)
    return name


@contextmanager
def device_memory(what: str, device: torch.device | str, way_out: str) -> Iterator[None]:
    """Turn an out-of-memory error in this context into one line that names the computation."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        msg = f"{what} does not fit into the memory of {device}"
        if sizes := _sizes(error):
            msg += f": {sizes}"
        raise ResourceError(f"{msg}; {way_out}") from error  # noqa: EM102


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error means that the device ran out of memory, in any library."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return bool(re.search(r"out of memory|ALLOC_FAILED|OutOfMemory", f"{type(error)} {error}"))


def _sizes(error: BaseException) -> str:
    """The memory that was needed and that is free, as far as the error names them."""
    wanted = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
    free = re.search(r"of which ([\d.]+ \w+) is free", str(error))
    said = [f"it needs {wanted[1]} more"] if wanted else []
    said += [f"{free[1]} are free"] if free else []
    return ", and ".join(said)


def _obstacle(name: str) -> tuple[str, str] | None:
    """Why a device cannot compute, and what to do; None if it can. Only an attempt shows it."""
    try:
        torch.zeros(1, device=name).add_(1.0).cpu()
    except RuntimeError as error:
        if is_out_of_memory(error):
            reason = _sizes(error) or _first_sentence(error)
            return f"{name} has no memory left ({reason})", "end other processes that use it"
        reason = _first_sentence(error)
        if "busy or unavailable" in reason:
            return f"{name} is in use ({reason})", "end other processes that use it"
        return (
            f"torch cannot compute on {name} ({reason})",
            "install a build of torch that supports it",
        )
    return None


def _first_sentence(said: object) -> str:
    return re.split(r"\n|\. |\.$", str(said).strip(), maxsplit=1)[0]

"""Naming the device that tensors live on."""

from __future__ import annotations

import re

import torch

from loca_theory.errors import InvalidArgumentError, ResourceError


def resolve_device(name: str) -> str:
    """Turn ``auto``, ``cpu``, ``cuda`` or ``cuda:N`` into a device that exists.

    ``auto`` is the current CUDA device where there is one, the CPU elsewhere.

    Raises:
        InvalidArgumentError: the name is none of these.
        ResourceError: CUDA was asked for by name and there is none, or not that many devices.
    """
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d+))?", name)
    if not match:
        msg = f"unknown device {name!r}; choose auto, cpu, cuda or cuda:N"
        raise InvalidArgumentError(msg)
    if name == "cpu":
        return name
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if count else "cpu"
    if count == 0:
        msg = "no CUDA device is available to torch; choose --device cpu"
        raise ResourceError(msg)
    if match[1] is not None and int(match[1]) >= count:
        msg = f"there is no {name}: this machine has {count} CUDA device(s), numbered from 0"
        raise ResourceError(msg)
    return name

"""Tensors as text, for results that are stored in JSON."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping

import torch


def text_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Text that :func:`tensors_of` reads; "" if there are none."""
    from safetensors.torch import save

    plain = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    return b64encode(save(plain)).decode("ascii") if plain else ""


def tensors_of(text: str) -> dict[str, torch.Tensor]:
    """The tensors of a text, on the CPU, by name."""
    from safetensors.torch import load

    return dict(sorted(load(b64decode(text)).items())) if text else {}

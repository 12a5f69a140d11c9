"""Layers other than linear ones with LoCA adapters: embeddings and two-dimensional convolutions.

Their weights are matrices (p, q) with one row per output and one column per input. A *token* is
one input vector of that matrix: the indicator of an embedding's index, or the patch under a
convolution's kernel. The searches that record gradients see a linear layer over these tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from loca_theory.adapters.costs import product_dtype
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.adapters.tuner.layer import LoCALayer
from loca_theory.errors import InvalidArgumentError


class LoCAEmbedding(LoCALayer):
    """An ``nn.Embedding`` with LoCA adapters; p is its width and q its number of embeddings.

    The gradient of its ``padding_idx`` is zero as in the base layer. A step that records gradients
    for a search forms one indicator of q entries per index.

    Raises:
        InvalidArgumentError: the layer has ``max_norm``, which changes its weight as it is used.
    """

    def _features(self) -> tuple[int, int]:
        base: Any = self.get_base_layer()
        if base.max_norm is not None:
            raise InvalidArgumentError(
                f"{self.name}: LoCA does not adapt an nn.Embedding with max_norm, which changes "
                "its weight; set max_norm to None, or choose other target modules"
            )
        return base.embedding_dim, base.num_embeddings

    def _in_layout(self, delta: torch.Tensor) -> torch.Tensor:
        return delta.T

    def _added(self, spectrum: CosineSpectrum, x: torch.Tensor) -> torch.Tensor:
        base: Any = self.get_base_layer()
        delta = self._in_layout(spectrum.increment(in_use=True))
        y = functional.embedding(
            x, delta, base.padding_idx, scale_grad_by_freq=base.scale_grad_by_freq
        )
        if spectrum.records(y) and spectrum.recorded is not None:  # else compiled code forms tokens
            tokens = functional.one_hot(x, base.num_embeddings).to(y.dtype)
            if base.padding_idx is not None:
                tokens = tokens * (x != base.padding_idx)[..., None]
            y = spectrum.search.record(tokens, y)
        # Some models of transformers scale the output of their embedding.
        scale: Any = getattr(base, "embed_scale", None)
        return y if scale is None else y * scale


class LoCAConv2d(LoCALayer):
    """An ``nn.Conv2d`` with LoCA adapters; p is its outputs and q = inputs × height × width.

    A step that records gradients for a search unfolds the input to patches.

    Raises:
        InvalidArgumentError: the convolution is grouped.
    """

    def _features(self) -> tuple[int, int]:
        base: Any = self.get_base_layer()
        if base.groups != 1:
            raise InvalidArgumentError(
                f"{self.name}: LoCA does not adapt a grouped convolution (groups={base.groups}); "
                "choose other target modules"
            )
        height, width = base.kernel_size
        return base.out_channels, base.in_channels * height * width

    def _in_layout(self, delta: torch.Tensor) -> torch.Tensor:
        base: Any = self.get_base_layer()
        return delta.reshape(base.out_channels, base.in_channels, *base.kernel_size)

    def _added(self, spectrum: CosineSpectrum, x: torch.Tensor) -> torch.Tensor:
        base: Any = self.get_base_layer()
        delta = self._in_layout(spectrum.increment(in_use=True))
        dtype = product_dtype(x, torch.promote_types(x.dtype, delta.dtype))
        y = base._conv_forward(x.to(dtype), delta.to(dtype), None)
        if spectrum.records(y) and spectrum.recorded is not None:
            rows = y.flatten(-2).mT
            y = spectrum.search.record(_patches(base, x.detach()), rows).mT.reshape(y.shape)
        return y


def _patches(base: Any, x: torch.Tensor) -> torch.Tensor:
    """The input under the kernel at each position of the output, (..., positions, q)."""
    mode = "constant" if base.padding_mode == "zeros" else base.padding_mode
    padded = functional.pad(x, base._reversed_padding_repeated_twice, mode=mode)
    return functional.unfold(
        padded, base.kernel_size, dilation=base.dilation, stride=base.stride
    ).mT


def layer_class(base: nn.Module) -> type[LoCALayer]:
    """The class of tuner layer for a base layer; linear if no other kind fits."""
    if isinstance(base, nn.Embedding):
        return LoCAEmbedding
    return LoCAConv2d if isinstance(base, nn.Conv2d) else LoCALayer

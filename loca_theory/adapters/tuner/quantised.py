"""Quantised base layers, through the quantisation backends of PEFT."""

from __future__ import annotations

from typing import Any

import torch
from peft.utils import resolve_quantization_backend
from peft.utils.quantization_utils import ForwardOnlyQuantizationBackend, QuantizationBackend
from torch import nn

from loca_theory.adapters.linear import is_torchao
from loca_theory.errors import InvalidArgumentError


def backend_of(base: nn.Module, options: dict[str, Any]) -> QuantizationBackend | None:
    """PEFT's backend for the base layer; None if the layer is not quantised.

    Args:
        base: The base layer.
        options: What ``peft.utils.get_quantization_kwargs`` finds in the model. A model that
            torchao's ``quantize_`` quantised in place does not say how: its layers train, but
            cannot be requantised.
    """
    if is_torchao(getattr(base, "weight", None)) and not options.get("get_apply_tensor_subclass"):
        return ForwardOnlyQuantizationBackend("torchao, by a configuration that PEFT cannot find")
    return resolve_quantization_backend(base, **options)


def dequantised(layer: Any) -> torch.Tensor:
    """The weight of a tuner layer's base layer, dequantised if necessary.

    Raises:
        InvalidArgumentError: the backend cannot dequantise and requantise the weight.
    """
    base = layer.get_base_layer()
    # bitsandbytes repacks a 4-bit weight to evaluate on some CPUs. Its ``dequantize_4bit``, which
    # PEFT calls, reads such a weight wrongly.
    state = getattr(getattr(base, "weight", None), "quant_state", None)
    if getattr(state, "packing_format_for_cpu", False):
        return _weight_from_outputs(base, layer.in_features)
    try:
        return layer.get_base_weight()
    except (NotImplementedError, TypeError) as error:
        raise InvalidArgumentError(
            f"{layer.name}: its weight is quantised, and PEFT cannot merge into it ({error}); "
            "use the adapter unmerged"
        ) from error


def replace_weight(layer: Any, weight: torch.Tensor) -> None:
    """Set the weight of a tuner layer's base layer, requantised if necessary."""
    bias = getattr(layer.get_base_layer(), "bias", None)
    layer.set_base_weight(weight)
    base = layer.get_base_layer()
    if bias is not None and base.bias is None:  # PEFT builds a new HQQ layer without the bias
        base.bias = bias


@torch.no_grad()
def _weight_from_outputs(base: Any, columns: int) -> torch.Tensor:
    """W, (p, q): the outputs of the layer without its bias for the rows of the identity."""
    bias, base.bias = base.bias, None
    try:
        return base(torch.eye(columns)).T.contiguous()
    finally:
        base.bias = bias

"""LoCA around a frozen linear layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError

# Attributes with the hooks of a layer; accelerate has its own.
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_hf_hook",
)


def is_conv1d(layer: nn.Module) -> bool:
    """Whether the layer is a ``Conv1D`` of transformers, which stores W transposed."""
    names = [f"{cls.__module__}.{cls.__name__}" for cls in type(layer).__mro__]
    return "transformers.pytorch_utils.Conv1D" in names


def features(layer: nn.Module, name: str) -> tuple[int, int]:
    """(p, q) of a linear layer: outputs, inputs.

    Raises:
        InvalidArgumentError: the layer is neither an ``nn.Linear`` nor a ``Conv1D``.
    """
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.in_features
    if is_conv1d(layer):
        weight: Any = layer.weight
        q, p = weight.ds_shape if hasattr(weight, "ds_shape") else weight.shape
        return p, q
    raise InvalidArgumentError(
        f"{name}: LoCA adapts linear layers (nn.Linear, Conv1D of transformers; in PEFT also "
        f"nn.Embedding and nn.Conv2d), not {type(layer).__name__}; choose other target modules"
    )


def is_torchao(weight: Any) -> bool:
    """Whether torchao has quantised the weight: its dtype is then that of the dequantised one."""
    return type(weight).__module__.startswith("torchao.")


def foldable_weight(layer: nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """W if ``x @ (W + ΔW).T`` may replace the layer and its increment, else None.

    It may if the layer is exactly an ``nn.Linear``, has no hooks, its own ``forward`` and a frozen
    weight, and computes in single precision at least: in half precision, W + ΔW would lose a small
    ΔW to rounding.
    """
    is_changed = "forward" in vars(layer) or any(getattr(layer, hooks, None) for hooks in _HOOKS)
    if type(layer) is not nn.Linear or is_changed:
        return None
    weight = layer.weight
    exact = weight.dtype == x.dtype and x.dtype in (torch.float32, torch.float64)
    ordinary = type(weight) in (nn.Parameter, torch.Tensor) and not weight.requires_grad
    kind = x.device.type  # autocast does not know the meta device
    casts = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return weight if exact and ordinary and not casts else None


class LoCALinear(nn.Module):
    r"""A frozen linear layer plus a learned increment: :math:`y = x\,(W + \Delta W)^\top + b`.

    Args:
        base: ``nn.Linear`` or the ``Conv1D`` of transformers. Its parameters are frozen.
        n_components: B.
        options: All other arguments of :class:`CosineSpectrum`.

    Raises:
        InvalidArgumentError: the base is not linear, or an argument of :class:`CosineSpectrum` is
            out of range.

    Source: section "Location-aware Cosine Adaptation" of the paper.
    """

    def __init__(self, base: nn.Module, n_components: int, **options: Any) -> None:
        super().__init__()
        shape = features(base, options.get("name", type(base).__name__))
        self.base = base.requires_grad_(False)
        self.is_merged = False
        weight: Any = base.weight
        self.spectrum = CosineSpectrum(shape, n_components, **options).to(weight.device)
        if weight.is_floating_point():
            self.spectrum.to(dtype=weight.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layer with its increment."""
        if self.is_merged:
            return self.base(x)
        weight = foldable_weight(self.base, x)
        if weight is not None and self.spectrum.coefficients.dtype == x.dtype:
            return self.spectrum(x, weight, self.base.bias)
        y = self.base(x)
        return y + self.spectrum(x).to(y.dtype)

    def increment(self) -> torch.Tensor:
        """ΔW in the layout of the base layer's weight: transposed for ``Conv1D``."""
        delta = self.spectrum.increment()
        return delta.T if is_conv1d(self.base) else delta

    @torch.no_grad()
    def merge(self) -> nn.Module:
        """Add ΔW to the weight of the base layer, and return that layer.

        Raises:
            InvalidArgumentError: the weight is quantised, or computed from other parameters.
        """
        if not self.is_merged:
            check_weight_is_stored(self.base, self.spectrum.name)
            weight: Any = self.base.weight
            weight.copy_(with_increment(weight, self.increment(), self.spectrum.name))
            self.is_merged = True
        return self.base


def check_weight_is_stored(base: nn.Module, name: str, parameter: str = "weight") -> None:
    """Check that a layer's weight is not computed from other parameters, as by ``weight_norm``.

    Raises:
        InvalidArgumentError: it is computed, so that an increment written to it would be lost.
    """
    if is_parametrized(base, parameter) or isinstance(vars(base).get(parameter), torch.Tensor):
        raise InvalidArgumentError(
            f"{name}: its weight is computed from other parameters, so nothing can be merged; "
            "use the adapter unmerged, or first "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )


def with_increment(weight: torch.Tensor, delta: torch.Tensor, name: str) -> torch.Tensor:
    """W + ΔW in the dtype of W, added in float32 at least.

    Raises:
        InvalidArgumentError: the weight is quantised.
    """
    if not weight.is_floating_point() or is_torchao(weight):
        kind = type(weight).__name__ if is_torchao(weight) else weight.dtype
        raise InvalidArgumentError(
            f"{name}: its weight is quantised ({kind}) and cannot take an increment; "
            "use the adapter unmerged"
        )
    return summed(weight, delta)


def summed(weight: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """W + ΔW in the dtype of W, added in float32 at least; torch.compile can trace it."""
    wide = torch.promote_types(torch.promote_types(weight.dtype, delta.dtype), torch.float32)
    return (weight.to(wide) + delta.to(weight.device, wide)).to(weight.dtype)

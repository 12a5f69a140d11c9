"""Single parameters with LoCA adapters, such as the fused experts of a mixture."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.utils.parametrize import is_parametrized

from loca_theory.adapters.linear import is_torchao, summed
from loca_theory.adapters.tuner.layer import LoCALayer
from loca_theory.errors import InvalidArgumentError

_MATRIX, _STACK = 2, 3


class ParamWrapper(LoCALayer):
    """A module of which one parameter has LoCA adapters (``target_parameters``).

    The parameter is a matrix (p, q), or a stack of matrices (experts, rows, columns), which is
    adapted as the one matrix with p = experts · rows and q = columns. So B counts the components of
    a parameter whatever its shape, and its state, schedule, search and file are those of a linear
    layer. The transform is orthogonal: as a family of increments without structure, B components of
    the whole stack retain as much as B / experts components of each expert. One component changes
    all experts.

    The module runs with W + ΔW instead of the parameter. The sum is rounded to the dtype of W,
    so in half precision a ΔW far below W is lost. A further parameter of the same module has a
    wrapper around this one. PEFT recognises the class by its name.

    Args:
        base_layer: The module that has the parameter, or another wrapper around it.
        name: Full name of the parameter.
        parameter_name: The attribute of the module.

    Raises:
        InvalidArgumentError: the parameter is not a matrix or a stack of matrices in at least
            half precision, or another parametrisation already replaces it.
    """

    def __init__(self, base_layer: nn.Module, name: str, parameter_name: str) -> None:
        self.parameter_name = parameter_name
        super().__init__(base_layer, name)
        self.quantization_backend = None

    def _features(self) -> tuple[int, int]:
        base = self.get_base_layer()
        if is_parametrized(base, self.parameter_name):
            raise InvalidArgumentError(
                f"{self.name}: torch.nn.utils.parametrize already replaces this parameter; "
                "remove its parametrisation, or choose other target parameters"
            )
        weight: Any = self.get_base_weight()
        shape = tuple(getattr(weight, "ds_shape", weight.shape))
        is_wide = weight.is_floating_point() and weight.itemsize > 1 and not is_torchao(weight)
        if not is_wide or len(shape) not in (_MATRIX, _STACK):
            raise InvalidArgumentError(
                f"{self.name}: LoCA adapts matrices and stacks of them that are not quantised, "
                f"not {weight.dtype} of shape {shape}; choose other target parameters"
            )
        *stacked, q = shape
        self._shape = torch.Size(shape)
        return torch.Size(stacked).numel(), q

    def _in_layout(self, delta: torch.Tensor) -> torch.Tensor:
        return delta.reshape(self._shape)

    def _get_base_layer_device_and_dtype(self, base_layer: nn.Module) -> Any:
        weight = getattr(base_layer, self.parameter_name)
        return weight.device, weight.dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module with W + ΔW, the sum over the active adapters, instead of W."""
        active = self._in_use()
        if not active:
            return self.base_layer(*args, **kwargs)
        weight = self.get_base_weight()
        for spectrum in active:
            delta = spectrum.increment(in_use=True)
            if spectrum.records(delta):
                delta = spectrum.search.record(None, delta)
            weight = summed(weight, self._in_layout(delta))
        path, module = self.parameter_name, self.base_layer
        while isinstance(module, ParamWrapper):
            path, module = f"base_layer.{path}", module.base_layer
        return functional_call(self.base_layer, {path: weight}, args, kwargs)

    def get_base_weight(self) -> torch.Tensor:
        """The parameter without its increments."""
        return getattr(self.get_base_layer(), self.parameter_name)

    def set_base_weight(self, weight_data: torch.Tensor) -> None:
        """Write the parameter in place."""
        self.get_base_weight().copy_(weight_data)

    def unload_and_optionally_merge_module(
        self, merge: bool, safe_merge: bool, adapter_names: list[str] | None
    ) -> nn.Module:
        """The module itself, without this wrapper and those inside it; PEFT calls this."""
        layer: nn.Module = self
        while isinstance(layer, ParamWrapper):
            if merge:
                layer.merge(safe_merge=safe_merge, adapter_names=adapter_names)
            layer = layer.base_layer
        return layer

    def extra_repr(self) -> str:
        """The name of the parameter."""
        return f"parameter_name={self.parameter_name!r}"

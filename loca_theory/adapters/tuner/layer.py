"""A linear layer with LoCA adapters: the tuner layer for PEFT."""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import torch
from peft.tuners.tuners_utils import (
    BaseTunerLayer,
    _get_in_out_features,
    check_adapters_to_merge,
)
from peft.utils import quantization_extra_repr
from torch import nn

from loca_theory.adapters.linear import (
    check_weight_is_stored,
    features,
    foldable_weight,
    is_conv1d,
    with_increment,
)
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.adapters.tuner.config import LoCAConfig
from loca_theory.adapters.tuner.parallel import refuse_split_weight
from loca_theory.adapters.tuner.quantised import backend_of, dequantised, replace_weight
from loca_theory.errors import InvalidArgumentError


class LoCALayer(nn.Module, BaseTunerLayer):
    """An ``nn.Linear`` or ``Conv1D``, or a quantised one, with any number of named LoCA adapters.

    ``other_layers`` has those of embeddings and convolutions.

    Args:
        base_layer: The layer to adapt, or another tuner's layer around it.
        name: Full name of the layer, for messages and for the seed of its locations.
        quantisation: What ``peft.utils.get_quantization_kwargs`` finds in the model.

    Raises:
        InvalidArgumentError: the layer is not linear.
    """

    adapter_layer_names = ("loca_spectrum",)
    other_param_names = ()
    parameter_name = "weight"

    def __init__(self, base_layer: nn.Module, name: str, **quantisation: Any) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.name = name
        self.loca_spectrum: Any = nn.ModuleDict({})
        self._disable_adapters = False
        self.merged_adapters = []
        base = self.get_base_layer()
        self.quantization_backend = backend_of(base, quantisation)
        self.out_features, self.in_features = self._features()
        self.fan_in_fan_out = is_conv1d(base)

    def _features(self) -> tuple[int, int]:
        """(p, q) of the base layer's weight as a matrix: outputs, inputs."""
        base, backend = self.get_base_layer(), self.quantization_backend
        is_quantised = backend is not None and backend.layer_type == "linear"
        q, p = _get_in_out_features(base) if is_quantised else (None, None)
        return (p, q) if p and q else features(base, self.name)

    def update_layer(self, adapter_name: str, n_frequency: int, config: LoCAConfig) -> None:
        """Add an adapter, or replace the one of that name.

        Raises:
            InvalidArgumentError: there are more components than locations.
        """
        self.loca_spectrum[adapter_name] = CosineSpectrum(
            (self.out_features, self.in_features),
            n_frequency,
            scaling=config.scaling,
            zero_init=config.init_weights,
            implementation=config.implementation,
            seed=(config.random_loc_seed, zlib.crc32(self.name.encode())),
            name=self.name,
            schedule=config.search_schedule(),
            location_search=config.location_search,
            init_locations=config.init_locations,
            location_lr=config.location_lr,
        )
        self._move_adapter_to_device_of_base_layer(adapter_name)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def spectrum(self, adapter_name: str) -> CosineSpectrum | None:
        """The spectrum of an adapter; None if this layer does not have the adapter."""
        return dict(self.loca_spectrum.items()).get(adapter_name)

    def get_delta_weight(self, adapter_name: str) -> torch.Tensor:
        """ΔW of an adapter, in the layout of the base layer's weight."""
        return self._in_layout(self.loca_spectrum[adapter_name].increment())

    def _in_layout(self, delta: torch.Tensor) -> torch.Tensor:
        """An increment (p, q) in the layout of the base layer's weight."""
        return delta.T if self.fan_in_fan_out else delta

    @torch.no_grad()
    def merge(self, safe_merge: bool = False, adapter_names: list[str] | None = None) -> None:
        """Add ΔW of the adapters to the weight of the base layer.

        A quantised weight is dequantised and, after all adapters are added, quantised once.

        Args:
            safe_merge: Change nothing unless the result is finite.
            adapter_names: Adapters to merge; None for the active ones.

        Raises:
            InvalidArgumentError: the quantised weight cannot be requantised, the weight is
                computed from other parameters, or the result is not finite.
        """
        chosen = check_adapters_to_merge(self, adapter_names)
        names = [name for name in chosen if name in self.loca_spectrum]
        if not names:
            return
        check_weight_is_stored(self.get_base_layer(), self.name, self.parameter_name)
        weight = dequantised(self)
        for name in names:
            weight = with_increment(weight, self.get_delta_weight(name), self.name)
            if safe_merge and not torch.isfinite(weight).all():
                # PEFT's own words, by which its users know the error.
                raise InvalidArgumentError(
                    "NaNs detected in the merged weights. "
                    f"The adapter {name} seems to be broken ({self.name})"
                )
        replace_weight(self, weight)
        self.merged_adapters.extend(names)

    @torch.no_grad()
    def unmerge(self) -> None:
        """Subtract the merged increments from the weight of the base layer.

        A quantised weight is quantised again, so that it returns up to the error of quantisation.
        """
        if not self.merged:
            warnings.warn("Already unmerged. Nothing to do.", stacklevel=2)
            return
        weight = dequantised(self)
        for name in reversed(self.merged_adapters):
            if name in self.loca_spectrum:
                weight = with_increment(weight, -self.get_delta_weight(name), self.name)
        replace_weight(self, weight)
        self.merged_adapters.clear()

    def _in_use(self) -> list[Any]:
        """The spectra of the active adapters, unless they are disabled or in the weight."""
        if self.disable_adapters and self.merged:
            self.unmerge()
        if self.disable_adapters or self.merged:
            return []
        return [self.loca_spectrum[n] for n in self.active_adapters if n in self.loca_spectrum]

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Apply the base layer with the increments of the active adapters."""
        active = self._in_use()
        if not active:
            return self.base_layer(x, *args, **kwargs)
        refuse_split_weight(self.get_base_layer(), self.name)
        if len(active) == 1 and not args and not kwargs:
            base: Any = self.base_layer
            weight = foldable_weight(base, x)
            if weight is not None and active[0].coefficients.dtype == x.dtype:
                return active[0](x, weight, base.bias)
        result = self.base_layer(x, *args, **kwargs)
        if self.quantization_backend is not None:
            result = self.quantization_backend.maybe_clone_base_result(result)
        for spectrum in active:
            result = result + self._added(spectrum, x).to(result.dtype)
        return result

    def _added(self, spectrum: CosineSpectrum, x: torch.Tensor) -> torch.Tensor:
        """The part of the output that an increment adds."""
        return spectrum(x)

    def supports_lora_conversion(self, adapter_name: str = "default") -> bool:
        """Whether PEFT may approximate the adapter by LoRA; it does so for linear layers only."""
        del adapter_name
        return type(self) is LoCALayer

    def extra_repr(self) -> str:
        """The name of the quantisation backend, if there is one."""
        return quantization_extra_repr(self)

    def __repr__(self) -> str:
        return "loca." + super().__repr__()

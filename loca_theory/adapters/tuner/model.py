"""A model with LoCA adapters, under PEFT's contract."""

from __future__ import annotations

import re
import warnings
from typing import Any

from peft.tuners.tuners_utils import BaseTuner
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from torch import nn

from loca_theory.adapters.linear import features, is_conv1d
from loca_theory.adapters.schedule import LocationTraining
from loca_theory.adapters.tuner.config import LoCAConfig
from loca_theory.adapters.tuner.layer import LoCALayer
from loca_theory.errors import InvalidArgumentError


class LoCAModel(BaseTuner):
    """LoCA around a model; made by ``get_peft_model(model, LoCAConfig(...))``.

    Each trainable adapter has a :class:`~loca_theory.adapters.LocationTraining`, found under its
    name in ``location_training``, which counts the steps of the optimiser by itself.

    Args:
        model: The model to adapt.
        config: A :class:`LoCAConfig`.
        adapter_name: The name of the adapter.
        low_cpu_mem_usage: Leave parameters empty until they are loaded.
    """

    prefix = "loca_"
    tuner_layer_cls = LoCALayer
    target_module_mapping = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    @property
    def location_training(self) -> dict[str, LocationTraining]:
        """What takes each adapter through its schedule."""
        return self.__dict__.setdefault("_location_training", {})

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any
    ) -> None:
        """Put the adapter into the model, and start its schedule."""
        super().inject_adapter(model, adapter_name, *args, **kwargs)
        config: Any = self.peft_config[adapter_name]
        spectra = [
            spectrum
            for layer in model.modules()
            if isinstance(layer, LoCALayer)
            and (spectrum := layer.spectrum(adapter_name)) is not None
            and spectrum.learns_locations
        ]
        if spectra:
            self.location_training[adapter_name] = LocationTraining(spectra, config.schedule())

    def delete_adapter(self, adapter_name: str) -> None:
        """Remove an adapter and its schedule."""
        super().delete_adapter(adapter_name)
        self.location_training.pop(adapter_name, None)

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: Any, adapter_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        # Continuous locations are in a checkpoint that was saved while they were being learned,
        # and not in a model made for inference; its spectra shall know of them all the same.
        found = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, state_dict)
        end = ".loca_spectrum.locations"
        return {
            f"{key.removesuffix('.locations')}.{adapter_name}.locations"
            if key.endswith(end)
            else key: value
            for key, value in found.items()
        }

    def _create_and_replace(
        self,
        loca_config: LoCAConfig,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        **optional_kwargs: Any,
    ) -> None:
        del optional_kwargs
        n_frequency = _n_frequency(loca_config, current_key)
        if isinstance(target, LoCALayer):
            target.update_layer(adapter_name, n_frequency, loca_config)
            return
        base: Any = target.get_base_layer() if hasattr(target, "get_base_layer") else target
        features(base, current_key)
        if loca_config.fan_in_fan_out != is_conv1d(base):
            loca_config.fan_in_fan_out = is_conv1d(base)
            warnings.warn(
                f"fan_in_fan_out is set to {is_conv1d(base)}, as {current_key} is a "
                f"{type(base).__name__}",
                stacklevel=2,
            )
        layer = LoCALayer(target, current_key)
        layer._active_adapter = adapter_name
        layer.update_layer(adapter_name, n_frequency, loca_config)
        if adapter_name != self.active_adapter:
            # A further adapter is not trainable until it is made active.
            layer.requires_grad_(requires_grad=False)
        self._replace_module(parent, target_name, layer, target)


def _n_frequency(config: LoCAConfig, key: str) -> int:
    for pattern, count in (config.n_frequency_pattern or {}).items():
        try:
            if re.fullmatch(rf"(?:.*\.)?(?:{pattern})", key):
                return count
        except re.error as error:
            msg = f"n_frequency_pattern {pattern!r} is no regular expression: {error}"
            raise InvalidArgumentError(msg) from None
    return config.n_frequency

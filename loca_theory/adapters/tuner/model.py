"""A model with LoCA adapters: the tuner model for PEFT."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peft.tuners.tuners_utils import BaseTuner, BaseTunerLayer
from peft.utils import get_quantization_kwargs
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from peft.utils.other import get_pattern_key
from torch import nn

from loca_theory.adapters.tuner.layer import LoCALayer
from loca_theory.adapters.tuner.other_layers import layer_class
from loca_theory.adapters.tuner.parallel import refuse_plan
from loca_theory.adapters.tuner.parameters import ParamWrapper
from loca_theory.errors import InvalidArgumentError

_SPECTRUM = ".loca_spectrum."


class LoCAModel(BaseTuner):
    """A model with LoCA adapters; ``get_peft_model(model, LoCAConfig(...))`` creates it.

    Args:
        model: The model to adapt.
        config: A :class:`LoCAConfig`.
        adapter_name: The name of the adapter.
        low_cpu_mem_usage: Leave parameters empty until they are loaded.
    """

    prefix = "loca_"
    tuner_layer_cls = LoCALayer
    target_module_mapping = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    def inject_adapter(
        self, model: nn.Module, adapter_name: str, *args: Any, **kwargs: Any
    ) -> None:
        """Put the adapter into the model."""
        super().inject_adapter(model, adapter_name, *args, **kwargs)
        config: Any = self.peft_config[adapter_name]
        layers = [m.name for m in model.modules() if isinstance(m, LoCALayer)]
        for pattern in config.n_frequency_pattern or {}:
            if not any(get_pattern_key([pattern], name) == pattern for name in layers):
                warnings.warn(f"n_frequency_pattern {pattern!r} matches no layer", stacklevel=2)

    @classmethod
    def _remove_adapter_name_from_key(cls, key: str, adapter_name: str) -> str:
        return key.replace(f"{_SPECTRUM}{adapter_name}.", _SPECTRUM)

    @classmethod
    def _remap_adapter_state_dict_for_load(
        cls, model: nn.Module, config: Any, adapter_name: str, state_dict: dict[str, Any]
    ) -> dict[str, Any]:
        """Map the state of a search as well, which a new model does not have yet."""
        same: Any = {key: key for key in state_dict}
        remapped = super()._remap_adapter_state_dict_for_load(model, config, adapter_name, same)
        names: dict[Any, str] = {key: name for name, key in remapped.items()}
        renamed = {}
        for key, value in state_dict.items():
            layer, _, end = key.partition(_SPECTRUM)
            beside = names.get(f"{layer}{_SPECTRUM}coefficients")
            renamed[beside.removesuffix("coefficients") + end if beside else names[key]] = value
        return renamed

    def _prepare_adapter_config(self, peft_config: Any, model_config: dict[str, Any]) -> Any:
        """Take PEFT's target modules of the architecture, which parameters can do without."""
        can_do_without = peft_config.target_modules is None and peft_config.target_parameters
        if can_do_without and model_config["model_type"] not in self.target_module_mapping:
            return peft_config
        return super()._prepare_adapter_config(peft_config, model_config)

    def _check_new_adapter_config(self, config: Any) -> None:
        """Refuse a further adapter of other parameters, whose wrappers would nest differently."""
        super()._check_new_adapter_config(config)
        configs: Any = self.peft_config
        targets = [sorted(c.target_parameters) for c in configs.values() if c.target_parameters]
        if any(names != targets[0] for names in targets):
            raise InvalidArgumentError(
                "all adapters must target the same set of parameters, not target_parameters="
                + " and ".join(map(str, targets))
            )

    @contextmanager
    def _enable_peft_forward_hooks(self, *_: Any, **options: Any) -> Iterator[None]:
        if options.get("adapter_names") is not None:
            raise InvalidArgumentError(
                "LoCA does not support mixed batches; omit adapter_names and choose one adapter "
                "for all samples with set_adapter"
            )
        yield

    def _replace_module(
        self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module
    ) -> None:
        # The adapters are already on their device, and a module that is restored has its weights.
        del child
        setattr(parent, child_name, new_module)

    def _create_and_replace(
        self,
        peft_config: Any,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        parameter_name: str | None = None,
    ) -> None:
        n_frequency = peft_config.components_of(current_key)
        # A wrapper that has this adapter already belongs to another parameter of the same module.
        is_of_other = isinstance(target, ParamWrapper) and adapter_name in target.loca_spectrum
        if isinstance(target, LoCALayer) and not is_of_other:
            target.update_layer(adapter_name, n_frequency, peft_config)
            return
        base: Any = target.get_base_layer() if isinstance(target, BaseTunerLayer) else target
        refuse_plan(self.model, base, current_key)
        if isinstance(parent, nn.MultiheadAttention):
            raise InvalidArgumentError(
                f"{current_key}: nn.MultiheadAttention uses the weight of its out_proj and never "
                "calls the module, so an adapter would do nothing; leave it out, as by "
                'exclude_modules=["out_proj"]'
            )
        if parameter_name is not None:
            layer = ParamWrapper(target, current_key, parameter_name)
        else:
            layer = layer_class(base)(target, current_key, **get_quantization_kwargs(self))
            peft_config.fan_in_fan_out = layer.fan_in_fan_out
        layer._active_adapter = adapter_name
        layer.update_layer(adapter_name, n_frequency, peft_config)
        if adapter_name != self.active_adapter:
            # A further adapter is not trainable until it is made active.
            layer.requires_grad_(requires_grad=False)
        self._replace_module(parent, target_name, layer, target)

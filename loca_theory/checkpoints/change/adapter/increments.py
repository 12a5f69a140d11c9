"""Adapters of PEFT as named increments ΔW, with or without the base that they adapt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field

import torch

from loca_theory.checkpoints.change.adapter.kinds import (
    LOCA,
    WITH_BIAS,
    by_peft,
    check_type,
    needs_weights,
    without_base,
)
from loca_theory.checkpoints.change.adapter.layers import (
    AdaptedLayer,
    is_whole,
    split_by_layer,
    whole_name,
)
from loca_theory.checkpoints.change.adapter.loca import loca_increment
from loca_theory.checkpoints.change.adapter.lora import lora_factors, lora_increment
from loca_theory.checkpoints.change.adapter.peft import adds_prefix, converted, prefix_of
from loca_theory.checkpoints.change.adapter.stored import StoredAdapter
from loca_theory.checkpoints.change.adapter.weights import UNTOLD, AdaptedWeights
from loca_theory.checkpoints.change.adapter.wrapped import WrappedLayers
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.model.view import View
from loca_theory.checkpoints.source.checkpoint import (
    Checkpoint,
    DamagedError,
    TensorEntry,
)
from loca_theory.checkpoints.source.layouts import tied_weight
from loca_theory.checkpoints.source.open import ADAPTER_CONFIG

_TIED = "PEFT adds two increments to one tensor; merge the adapter and pass the merged model"
_NOT_LOADED = "PEFT does not load it and leaves it as it is initialised, at 0 for most types"


@dataclass
class AdapterIncrements(Checkpoint):
    """The increments of an adapter, by the names of the weights that they are added to.

    Weights that the adapter stores whole (``modules_to_save``) are among them if the base is there.

    Args:
        adapter: The adapter as PEFT stores it.
        base: The base; empty if it is not there. Without it, only increments that do not depend on
            it can be loaded, under their names in the model that was adapted.
        model: The model of the base.
        is_converted: Whether PEFT converts the adapter to the names of this version of the model.

    Attributes:
        entries: The increments that can be loaded, with the base's names and shapes of the weights.
        layers: The weights that the adapter changes, by the base's names.
        matched: Where they belong in the base.
        whole: Name in the file of each tensor that is stored whole, by its name in the model.

    Raises:
        InvalidArgumentError: the adapter has no increments, they need the base, or the base is of
            another model.
        DamagedError: a file is damaged or not in the expected format.
        ResourceError: the type of the adapter needs PEFT, which is not installed.
    """

    adapter: StoredAdapter
    base: Checkpoint = field(default_factory=Checkpoint)
    model: InitVar[Model | None] = None
    is_converted: bool = False

    def __post_init__(self, model: Model | None) -> None:
        title, self._config, self._source = self.adapter
        check_type(self._config, title)
        self._type, self._by_peft = self._config["peft_type"], by_peft(self._config)
        if self._by_peft and not self.base.entries:
            raise without_base(self._config, title)
        prefix = prefix_of(self._type) if self._by_peft else f"{self._type.lower()}_"
        if model is not None and self.is_converted:
            self._config, self._source = converted(self._config, self._source, model)
        self.layers: dict[str, AdaptedLayer] = {}
        self._copies: dict[str, str] = {}
        names = self._source.names
        adds = adds_prefix(names, self._config, self.base)
        layers, copies, self._shared, not_loaded = split_by_layer(
            names, prefix, self.base.names, adds_prefix=adds
        )
        if not layers:
            msg = f"{title} holds no tensor of a {self._type} adapter, and that is what "
            msg += f"{ADAPTER_CONFIG} says it is; fetch both again"
            if not_loaded:
                msg = f"{title} holds nothing that PEFT loads, so that the adapter stays as it is "
                msg += f"initialised: {next(iter(not_loaded.values()))}; rename its tensors"
            raise DamagedError(msg)
        for name, reason in not_loaded.items():
            self.leave_out(name, _NOT_LOADED, reason, damaged=True)
        named = {whole_name(name): key for name, key in copies.items()}
        weights = AdaptedWeights(self._config, self._source, self.base, model, layers, named)
        self.matched = weights.match
        try:
            self._add_layers(weights.find(self.left_out))
        except DamagedError as error:
            raise DamagedError(f"{title}: {error}") from error
        self.whole = {whole_name(name): key for name, key in copies.items() if is_whole(name)}
        for name, key in copies.items():
            self._add_copy(name, key, self.matched.partners.get(whole_name(name)))
        self._leave_out_tied()
        biased = [layer.module for layer in self.layers.values() if layer.bias in self.base.entries]
        layers = list(self.layers.values())
        self._wrapped = WrappedLayers(self._config, self._source, layers, self._shared, biased)

    def _add_layers(self, layers: Iterator[AdaptedLayer]) -> None:
        for layer in layers:
            self.layers[layer.name] = layer
            dtypes = [self._source.entries[key].dtype for key in layer.keys.values()]
            stored = next((dtype for dtype in dtypes if "F" in dtype.upper()), "F32")
            self.entries[layer.name] = TensorEntry(layer.shape, stored, is_computed=True)
            if self._type in WITH_BIAS and layer.bias in self.base.entries:
                self.leave_out(layer.bias, "a bias, which may change with the weight")
            for part in layer.keys:
                if part.endswith(".bias"):
                    self.leave_out(f"{layer.module}.{part}", "a trained bias")
        if not self.entries and any(str(error) == UNTOLD for error in self.left_out.values()):
            raise without_base(self._config, self.adapter.title)

    def _add_copy(self, name: str, key: str, partner: str | None) -> None:
        """Add a tensor that is not of a layer, such as a weight of ``modules_to_save``."""
        plain = whole_name(name)
        if key in self._source.left_out:
            self.left_out[plain] = self._source.left_out[key]
            return
        entry = self._source.entries[key]
        weight = partner if partner is not None else tied_weight(plain, entry.shape, self.base)
        partner = partner or plain
        if plain.endswith(".bias"):
            reason = "a trained bias"
        elif ".base_layer." in name:
            reason = "a copy of the base's weight"
        elif name.endswith("trainable_tokens_delta"):
            reason = "replaced rows of an embedding (trainable tokens)"
        elif not self.base.entries:
            reason = "stored whole (modules_to_save): pass the base as well to compare it"
        elif weight not in self.base.entries:
            reason = "only in the adapter"
        elif partner in self.entries:
            reason = "stored whole as well (modules_to_save)"
        else:
            if weight != partner and isinstance(self.base, View):
                self.base.tie(partner, weight)
            self.entries[partner], self._copies[partner] = entry, plain
            return
        # The increment of the same weight goes by its plain name.
        self.leave_out(name if plain in self.entries or plain in self.left_out else plain, reason)

    def _leave_out_tied(self) -> None:
        """Leave out weights that the model ties to one tensor, if the adapter changes several."""
        owners: dict[str, list[str]] = {}
        for name, layer in self.layers.items():
            entry = self.base.entries.get(name)
            owner = tied_weight(name, layer.shape, self.base) if entry is None else entry.tied_to
            owners.setdefault(owner or name, []).append(name)
        for names in owners.values():
            for name in names if len(names) > 1 else ():
                self.leave_out(name, _TIED, " and ".join(other for other in names if other != name))

    def _read(self, name: str, expert: int | None) -> torch.Tensor:
        """ΔW in the base's orientation; float32, or float64 if float32 cannot hold it well."""
        layer = self.layers.get(name)
        if layer is None:  # it is stored whole
            saved, weight = self.load_whole(self._copies[name]), self._weight(name)
            wide = torch.float64 if torch.float64 in (saved.dtype, weight.dtype) else torch.float32
            change, rows = saved.to(wide, copy=True), min(len(saved), len(weight))
            # Rows that only one side has are not compared.
            change[:rows].sub_(weight[:rows].to(wide))
            return change
        if self._by_peft:
            weight = self._weight(name) if needs_weights(self._config) else None
            return self._wrapped.increment(layer, weight)
        if self._type == LOCA:
            return loca_increment(layer, self._source, self._config)
        return lora_increment(layer, self._source, self._config, expert)

    def factors(self, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The factors of LoRA; None for other increments."""
        layer = self.layers.get(name)
        if layer is None or self._by_peft or self._type == LOCA or layer.experts is not None:
            return None
        return lora_factors(layer, self._source, self._config)

    def own_name(self, name: str) -> str:
        """Name of a weight in the model that was adapted."""
        layer = self.layers.get(name)
        if layer is None:
            return self._copies[name]
        return layer.module if layer.is_parameter else f"{layer.module}.weight"

    def load_whole(self, name: str) -> torch.Tensor:
        """A tensor that the adapter stores whole, by its name in the model."""
        return self._source.load(self.whole[name])

    @property
    def saved_modules(self) -> list[str]:
        """The entries of ``modules_to_save``."""
        modules = self._config.get("modules_to_save") or []
        if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
            raise DamagedError(f"{self.adapter.title}: modules_to_save is not a list of names")
        return modules

    def stored(self, name: str, expert: int | None = None) -> Iterator[torch.Tensor]:
        """Yield the adapter's tensors and settings from which an increment is made.

        W, on which it may depend too, is not among them.
        """
        del expert  # the factors of all experts are stored together
        if name in self._copies:
            yield self.load_whole(self._copies[name])
            return
        layer = self.layers[name]
        for key in (*layer.keys.values(), *self._shared):
            yield self._source.load(key)
        sizes = [(layer.module, layer.shape) for layer in self.layers.values()]
        settings = [self._config, sizes, layer.module, layer.is_transposed]
        text = json.dumps(settings, sort_keys=True)
        yield torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)

    def _weight(self, name: str) -> torch.Tensor:
        weight = self.base.load(name)
        if not weight.is_floating_point():
            raise DamagedError(
                f"the base stores {name} as {weight.dtype}: quantised, or not a weight"
            )
        return weight

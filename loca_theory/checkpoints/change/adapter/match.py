"""Where the weights that an adapter changes belong in its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.nn.functional import cosine_similarity

from loca_theory.checkpoints.change.adapter.layers import fits, wanted_names, without_wrappers
from loca_theory.checkpoints.model.matching import NameMatch, match_names
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint


@dataclass(frozen=True)
class AdapterMatch:
    """What tells which part of a model an adapter was trained in.

    Attributes:
        config: Configuration of the adapter.
        source: The file with its tensors.
        base: The base; empty if it is not there.
        model: The model of the base; None if it is not known.
        layers: For each layer, as wrapped by PEFT, the names of its tensors.
        whole: Name in the file of each tensor that is stored whole, by its name in the model.
        shapes: Shape of each weight that the adapter tells, by its name in the model.
    """

    config: Mapping[str, Any]
    source: Checkpoint
    base: Checkpoint
    model: Model | None
    layers: Mapping[str, Mapping[str, str]]
    whole: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...] | None]

    def find(self) -> NameMatch:
        """The base's name of each weight, also of those that are stored whole."""
        names = [*wanted_names(self.layers, self.config), *self.whole]
        return match_names(
            names, self.base.names, fits=self._fits, likeness=self._likeness, part=self._part()
        )

    def _fits(self, name: str, partner: str) -> bool:
        entry = self.base.entries.get(partner)
        return entry is None or fits(entry.shape, self.shapes.get(name), can_turn=True)

    def _part(self) -> str | None:
        """Prefix of the part of the model that was adapted, if the configuration names its class.

        PEFT notes the class of a model that is adapted without a task.
        """
        noted = self.config.get("auto_mapping")
        name = noted.get("base_model_class") if isinstance(noted, dict) else None
        modules = {} if self.model is None else self.model.modules
        parts = [path for path, module in modules.items() if type(module).__name__ == name]
        return f"{parts[0]}." if len(parts) == 1 else None

    def _likeness(self, partners: Mapping[str, str]) -> float | None:
        """Mean cosine of what the adapter stores of weights, and of the base's own.

        These are matrices that are stored whole, and the norms of rows (less their mean) of DoRA.
        """
        entries, pairs = self.base.entries, []
        for name, key in self.whole.items():
            entry = entries.get(partners.get(name, ""))
            if entry is not None and len(entry.shape) > 1:
                pairs.append((self.source.load(key), self.base.load(partners[name])))
        for raw, keys in self.layers.items():
            name = partners.get(f"{without_wrappers(raw)}.weight", "")
            key = next((keys[what] for what in keys if "magnitude" in what), None)
            if key is not None and name in entries and len(entries[name].shape) == 2:
                norms = self.base.load(name).double().norm(dim=1)
                magnitudes = self.source.load(key).double().flatten()
                pairs.append((magnitudes - magnitudes.mean(), norms - norms.mean()))
        cosines = [
            cosine_similarity(stored.double().flatten(), weight.double().flatten(), dim=0).item()
            for stored, weight in pairs
            if stored.numel() == weight.numel()
        ]
        return sum(cosines) / len(cosines) if cosines else None

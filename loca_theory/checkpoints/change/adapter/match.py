"""What tells which part of a model an adapter was trained in, if its names fit several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from loca_theory.checkpoints.model.matching import Partners, mean_cosine
from loca_theory.checkpoints.model.model import Model
from loca_theory.checkpoints.source.checkpoint import Checkpoint


def adapted_part(config: Mapping[str, Any], model: Model | None) -> str | None:
    """Prefix of the part of the model that was adapted, if the configuration names its class.

    PEFT notes the class of a model that is adapted without a task.
    """
    noted = config.get("auto_mapping")
    kind = noted.get("base_model_class") if isinstance(noted, dict) else None
    modules = {} if model is None else model.modules
    parts = [path for path, module in modules.items() if type(module).__name__ == kind]
    return f"{parts[0]}." if len(parts) == 1 else None


class Likeness(NamedTuple):
    """Mean cosine of what an adapter stores of weights, and of the base's own.

    These are matrices that are stored whole, and the norms of rows (less their mean) of DoRA.

    Attributes:
        source: The file of the adapter.
        base: The base.
        whole: Name in the file of each tensor that is stored whole, by its name in the model.
        magnitudes: Name in the file of the norms of each weight's rows, by the weight's name.
    """

    source: Checkpoint
    base: Checkpoint
    whole: Mapping[str, str]
    magnitudes: Mapping[str, str]

    def __call__(self, partners: Partners) -> float | None:
        """The mean cosine if these are the base's names; None if nothing can be compared."""
        entries, load = self.base.entries, self.source.load
        matrices = {
            name: partner
            for name, partner in partners.items()
            if partner in entries and len(entries[partner].shape) > 1
        }
        pairs = [
            (load(key), self.base.load(matrices[name]))
            for name, key in self.whole.items()
            if name in matrices
        ]
        for name, key in self.magnitudes.items():
            if name in matrices and len(entries[matrices[name]].shape) == 2:
                norms = self.base.load(matrices[name]).double().norm(dim=1)
                stored = load(key).double()
                pairs.append((stored - stored.mean(), norms - norms.mean()))
        return mean_cosine(pairs)

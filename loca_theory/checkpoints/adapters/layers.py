"""The tensors of an adapter by layer, and the weights of a base by the names an adapter gives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from loca_theory.checkpoints.weights.checkpoint import Checkpoint, Entry

_WHOLE = "base_model."
_MODEL = f"{_WHOLE}model."
_WRAPPED = "base_layer"


@dataclass(frozen=True)
class AdaptedLayer:
    """One weight that an adapter changes.

    Attributes:
        name: The base's name of the weight; without a base, its name in the model.
        module: Name of its layer in the model.
        keys: The name in the file of each of its tensors, by what it is (``lora_A.weight``).
        shape: Shape of the weight, as the base stores it.
        is_transposed: Whether the base stores it as q×p, or as q×p for each expert.
        experts: Number of experts if the weight is one tensor of all experts.
        parameter: Name of the parameter that PEFT targets by its name; "" for a layer's weight.
    """

    name: str
    module: str
    keys: Mapping[str, str]
    shape: tuple[int, ...]
    is_transposed: bool = False
    experts: int | None = None
    parameter: str = ""

    @property
    def target(self) -> str:
        """What PEFT's patterns match."""
        return self.parameter or self.module

    def load(self, source: Checkpoint) -> dict[str, torch.Tensor]:
        """Load the tensors of the layer, by what they are."""
        return {what: source.load(key) for what, key in self.keys.items()}


def split_by_layer(
    names: Iterable[str], prefix: str
) -> tuple[dict[str, dict[str, str]], dict[str, str], list[str]]:
    """Sort the tensors of an adapter by the layer that they belong to.

    The names in the file: of each layer's tensors, by what they are; of other tensors of the model,
    by their names in it; of those that layers share.
    """
    own = re.compile(rf"^(?P<module>.+)\.(?P<what>{re.escape(prefix)}.*)$")
    layers: dict[str, dict[str, str]] = {}
    others: dict[str, str] = {}
    shared: list[str] = []
    for name in names:
        inside = name.removeprefix(_MODEL)
        if inside == name and name.startswith(_WHOLE):
            shared.append(name)
        elif found := own.match(inside):
            layers.setdefault(found["module"], {})[found["what"]] = name
        else:
            others[inside] = name
    return layers, others, shared


def without_wrappers(module: str) -> str:
    """Name of a layer in the model without PEFT, whose wrappers call what they wrap base_layer."""
    return ".".join(part for part in module.split(".") if part != _WRAPPED)


def depth(module: str) -> int:
    """Number of wrappers around a layer."""
    return module.split(".").count(_WRAPPED)


class BaseNames:
    """Find the weights of a base by the names that an adapter gives them.

    The names of one side may have a prefix that those of the other lack, such as ``bert.``. The
    prefix that fits most names is tried first.

    Args:
        base: The base, or None.
        wanted: All names that the adapter gives.
    """

    def __init__(self, base: Checkpoint | None, wanted: Iterable[str]) -> None:
        self._entries = {} if base is None else base.entries
        self._known = set() if base is None else {*base.entries, *base.damaged}
        asked = set(wanted)
        counts: Counter[tuple[str, str]] = Counter()
        for name in self._known:
            counts.update(("", start) for start, end in _splits(name) if end in asked)
        for name in asked:
            counts.update((start, "") for start, end in _splits(name) if end in self._known)
        self._changes = [("", ""), *(change for change, _ in counts.most_common())]

    def find(self, name: str, fits: Callable[[Entry], bool]) -> str | None:
        """The base's name of the weight that fits, or None."""
        entries = self._entries
        return next(
            (own for own in self._alike(name) if own in entries and fits(entries[own])), None
        )

    def any(self, name: str) -> str | None:
        """The base's name of the weight even if it does not fit or is damaged, or None."""
        return next(self._alike(name), None)

    def _alike(self, name: str) -> Iterator[str]:
        for removed, added in self._changes:
            own = added + name.removeprefix(removed)
            if name.startswith(removed) and own in self._known:
                yield own


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """Each beginning of a name up to a dot, and the rest."""
    at = name.find(".")
    while at >= 0:
        yield name[: at + 1], name[at + 1 :]
        at = name.find(".", at + 1)

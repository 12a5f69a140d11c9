r"""PEFT LoRA adapters as increments ΔW = s·BA, without the base model.

The factor s is α/r, or α/√r for rank-stabilised adapters. The configuration's ``alpha_pattern`` can
set α for single modules. A transposed layer (``fan_in_fan_out``) is transposed back.

Source: E. J. Hu et al., LoRA (2022); D. Kalajdzievski, arXiv 2312.03732, for √r.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca_theory.checkpoints.checkpoint import Checkpoint, DamagedError, Entry, read_json
from loca_theory.checkpoints.safetensors_files import SafetensorsCheckpoint
from loca_theory.checkpoints.sources import ADAPTER_CONFIG
from loca_theory.checkpoints.torch_files import TorchCheckpoint
from loca_theory.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

# Between these bounds, products of single-precision entries and their sums stay normal numbers.
_LEAST, _MOST = 2.0**-64, 2.0**64
_FACTOR = re.compile(r"^(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<which>[AB])\.weight$")


@dataclass
class LoraIncrements(Checkpoint):
    """The increments of an adapter, under the names of the weights they are added to.

    Args:
        folder: A folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

    Raises:
        InvalidArgumentError: the folder does not hold a LoRA adapter, or its increment is not s·BA.
        DamagedError: a file is damaged or not in the expected format.
    """

    folder: Path
    entries: dict[str, Entry] = field(init=False, default_factory=dict)
    damaged: dict[str, str] = field(init=False, default_factory=dict)
    ignored: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._config = read_json(self.folder / ADAPTER_CONFIG)
        kind = self._config.get("peft_type")
        if kind != "LORA" or self._config.get("use_dora"):
            what = "DORA" if self._config.get("use_dora") else kind
            msg = f"{self.folder} is a {what} adapter, and only LoRA adapters are supported; "
            msg += "merge it into its base with PEFT and analyse the merged checkpoint"
            raise InvalidArgumentError(msg)
        weights = self.folder / "adapter_model.safetensors"
        if weights.is_file():
            self._source: Any = SafetensorsCheckpoint(file=weights)
        else:
            self._source = TorchCheckpoint({self.folder / "adapter_model.bin": None})
        self._collect()

    def _collect(self) -> None:
        factors: dict[str, dict[str, str]] = {}
        for name in self._source.entries:
            if found := _FACTOR.match(name):
                factors.setdefault(found["module"], {})[found["which"]] = name
            else:
                self.ignored[name] = "in the adapter, but not a factor of a linear layer"
        self._factors = {f"{module}.weight": pair for module, pair in factors.items()}
        for name, pair in self._factors.items():
            if set(pair) != {"A", "B"}:
                self.damaged[name] = "only one of the two factors is in the file"
                continue
            a, b = (self._source.entries[pair[which]] for which in "AB")
            if len(a.shape) != 2 or len(b.shape) != 2:
                self.ignored[name] = f"not a matrix: factors of {len(a.shape)} dimensions"
            elif a.shape[0] != b.shape[1] or not a.shape[0]:
                self.damaged[name] = f"the factors {b.shape} and {a.shape} do not fit together"
            else:
                shape = (b.shape[0], a.shape[1])
                shape = shape[::-1] if self._config.get("fan_in_fan_out") else shape
                self.entries[name] = Entry(shape, a.dtype)

    def load(self, name: str) -> torch.Tensor:
        """s·BA in float32, or in float64 if a product of two entries could leave float32's range.

        Raises:
            DamagedError: a factor cannot be read.
        """
        a, b = (self._source.load(self._factors[name][which]).float() for which in "AB")
        scale = self._scale(name.removesuffix(".weight"), a.shape[0])
        if not _LEAST < abs(scale) * float(a.abs().max()) * float(b.abs().max()) < _MOST:
            a, b = a.double(), b.double()
        increment = scale * (b @ a)
        return increment.T.contiguous() if self._config.get("fan_in_fan_out") else increment

    def _scale(self, module: str, rank: int) -> float:
        alpha = self._pattern("alpha_pattern", module, self._config.get("lora_alpha", rank))
        if not isinstance(alpha, int | float):
            msg = f"{self.folder / ADAPTER_CONFIG} has no number for lora_alpha"
            raise DamagedError(msg)
        return alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank)

    def _pattern(self, key: str, module: str, default: Any) -> Any:
        patterns = self._config.get(key)
        for pattern, value in (patterns if isinstance(patterns, dict) else {}).items():
            # PEFT's rule: a pattern matches the whole name, or its end after a dot.
            try:
                matches = re.search(rf"(.*\.)?({pattern})$", module)
            except re.error as error:
                msg = f"{self.folder / ADAPTER_CONFIG}: {pattern!r} in {key} is not a regular "
                msg += "expression"
                raise DamagedError(msg) from error
            if matches:
                return value
        return default


def is_adapter(path: Path) -> bool:
    """Whether a folder holds a PEFT adapter."""
    return path.is_dir() and (path / ADAPTER_CONFIG).is_file()

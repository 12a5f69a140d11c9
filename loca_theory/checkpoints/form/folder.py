"""Write adapters to folders, and check which files there an extraction wrote and may replace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from loca_theory._lookup import find
from loca_theory.checkpoints.change.adapter.peft import peft_package
from loca_theory.checkpoints.form.forms import CHOICES
from loca_theory.checkpoints.source.checkpoint import any_error_as, read_json
from loca_theory.checkpoints.source.files import SafetensorsFile
from loca_theory.checkpoints.source.open import ADAPTER_CONFIG
from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import TEMPORARY_SUFFIX, write_atomically

if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel

WEIGHTS, README = "adapter_model.safetensors", "README.md"
# In the header of the weights: an extraction wrote them.
_MARK = "extracted"


@dataclass(frozen=True)
class Adapter:
    """An adapter as PEFT stores it.

    Attributes:
        tensors: Its parameters, under the names that PEFT gives them.
        config: Its configuration.
    """

    tensors: Mapping[str, torch.Tensor]
    config: Mapping[str, Any]

    def peft_config(self) -> PeftConfig:
        """The configuration as an object of PEFT.

        Raises:
            ResourceError: PEFT is not installed.
        """
        return peft_package().PeftConfig.from_peft_type(**self.config)

    def apply(self, model: torch.nn.Module) -> PeftModel:
        """Put the adapter into a model, in place.

        Raises:
            ResourceError: PEFT is not installed, or the adapter does not fit the model.
        """
        peft = peft_package()
        with any_error_as(ResourceError, f"the adapter does not fit {type(model).__name__}"):
            adapted = peft.get_peft_model(model, self.peft_config())
            peft.set_peft_model_state_dict(adapted, dict(self.tensors))
        return adapted.eval()


def check_folder(folder: Path, method: str) -> Path:
    """Check that writing adapters below this folder would not replace or disturb other files.

    An adapter is written to a folder in it that is named after the method. This is new or empty, or
    holds only an adapter that an extraction wrote: PEFT could load another file together with the
    adapter. Hidden files and those of a killed process do not matter.
    """
    for form in find("method", method, CHOICES):
        inside = folder / form.key
        files = {path.name for path in inside.iterdir()} if inside.is_dir() else set()
        foreign = [
            file
            for file in sorted(files - _written(inside))
            if not file.startswith(".") and not file.endswith(TEMPORARY_SUFFIX)
        ]
        if foreign:
            raise ResourceError(
                f"{inside} holds {', '.join(foreign[:3])}, which no extraction wrote: an adapter "
                "there would replace it or be loaded with it; choose a new folder"
            )
    return folder


def write_adapter(folder: Path, adapter: Adapter, card: str) -> list[Path]:
    """Write the weights, the card and the configuration of an adapter."""
    texts = {README: card, ADAPTER_CONFIG: json.dumps(adapter.config, indent=2) + "\n"}
    # The weights first: they mark the folder of a process that is killed while it writes.
    weights = folder / WEIGHTS
    write_atomically(weights, lambda path: _save(adapter.tensors, path))
    for name, text in texts.items():
        write_atomically(folder / name, lambda path, text=text: path.write_bytes(text.encode()))
    return [weights, *(folder / name for name in texts)]


def read_adapter(folder: Path) -> Adapter:
    """Load an adapter."""
    stored = SafetensorsFile(folder / WEIGHTS)
    tensors = {name: stored.load(name) for name in stored.entries}
    return Adapter(tensors, read_json(folder / ADAPTER_CONFIG))


def remove_adapter(folder: Path) -> None:
    """Delete the files of an adapter that an extraction wrote, the weights last."""
    for name in sorted(_written(folder), key=lambda name: name == WEIGHTS):
        (folder / name).unlink(missing_ok=True)


def _save(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(dict(tensors), path, {"format": "pt", _MARK: "true"})
    except SafetensorError as error:  # also what the system refused, such as room on the disk
        raise OSError(str(error)) from error


def _written(folder: Path) -> set[str]:
    """Names of the files of an adapter, if an extraction wrote the weights in a folder."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / WEIGHTS, framework="pt") as tensors:
            header = tensors.metadata() or {}
    except (SafetensorError, OSError):
        return set()
    return {README, ADAPTER_CONFIG, WEIGHTS} if _MARK in header else set()

"""The state of a search as a file beside the adapter: safetensors, with numbers in its header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from loca_theory.adapters.search.training import LocationTraining
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import write_atomically

SEARCH_FILE = "loca_search.safetensors"
_HEADER = "loca_search"


def save_search(training: LocationTraining, folder: Path) -> None:
    """Write the state of a search into a folder; remove an earlier file if the search is over.

    Args:
        training: The search.
        folder: Where the adapter lies.

    Raises:
        ResourceError: the file cannot be written; an earlier one stays as it was.
    """
    path = folder / SEARCH_FILE
    if training.is_over:
        path.unlink(missing_ok=True)
        return
    state = training.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    layers = []
    for number, layer in enumerate(state["layers"]):
        tensors |= {
            f"{number}.{name}": value.detach().clone().contiguous()
            for name, value in layer.items()
            if isinstance(value, torch.Tensor)
        }
        layers.append({k: v for k, v in layer.items() if not isinstance(v, torch.Tensor)})
    header = {_HEADER: json.dumps({**state, "layers": layers})}
    write_atomically(path, lambda partial: partial.write_bytes(save(tensors, metadata=header)))


def load_search(training: LocationTraining, path: Path) -> None:
    """Continue a search from its file. Load the adapter first.

    Args:
        training: The search of the adapter.
        path: The file.

    Raises:
        InvalidArgumentError: the file is damaged, or belongs to another adapter.
    """
    try:
        with safe_open(path, framework="pt") as file:
            state: dict[str, Any] = json.loads((file.metadata() or {})[_HEADER])
            for name in file.keys():  # noqa: SIM118
                number, _, field = name.partition(".")
                state["layers"][int(number)][field] = file.get_tensor(name)
        training.load_state_dict(state)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None  # noqa: EM102
    except (SafetensorError, OSError, LookupError, ValueError, TypeError) as error:
        msg = f"{path} is not an intact search file ({error}); delete it to load the adapter as "
        msg += "finished"
        raise InvalidArgumentError(msg) from None

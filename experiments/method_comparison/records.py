"""A result in the form of PEFT's benchmark: what its ``results/*.json`` contain, key by key."""

from __future__ import annotations

import importlib.metadata
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("transformers", "peft", "datasets", "bitsandbytes", "torch")


def record(
    model: Any, run: Mapping[str, Any], trained: Mapping[str, Any], source: Mapping[str, str]
) -> dict[str, Any]:
    """All fields of a result; None for what is not known of a small task."""
    numbers, total = model.get_nb_trainable_parameters()
    settings = model.peft_config["default"].to_dict()
    names = ("system", "release", "version", "machine", "processor")
    about = {"sha": source["digest"], "created_at": None}
    return {
        "run_info": {
            **run,
            "peft_branch": None,
            "peft_worktree_is_dirty": None,
            "peft_config": {
                name: sorted(value) if isinstance(value, set) else value
                for name, value in settings.items()
            },
        },
        "train_info": {
            **trained,
            "file_size": _file_size(model),
            "num_trainable_params": numbers,
            "num_total_params": total,
        },
        "meta_info": {
            "model_info": about,
            "dataset_info": {source["task"]: about},
            "package_info": {
                key: value
                for name in _PACKAGES
                for key, value in ((f"{name}-version", _version(name)),
                                   (f"{name}-commit-hash", None))
            },
            "system_info": {
                **{name: getattr(platform, name)() for name in names},
                "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            },
            "pytorch_info": torch.__config__.show(),
        },
    }  # fmt: skip


def _file_size(model: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return (Path(folder) / "adapter_model.safetensors").stat().st_size


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

"""Random matrices, and checkpoints of them as folders."""

import json

import torch
from safetensors.torch import save_file


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def folder_of(path, content, config=None):
    path.mkdir(exist_ok=True)
    save_file(content, path / "model.safetensors", {"format": "pt"})
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path

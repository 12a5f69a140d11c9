"""A small pair of really trained weights, made in about a second."""

import pytest
import torch
from safetensors.torch import save_file


def trained_pair():
    """A tiny transformer that learns to say which token of a sequence is the largest."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(48, 4, 96, batch_first=True)
    model = torch.nn.ModuleDict(
        {
            "embed": torch.nn.Embedding(64, 48),
            "encoder": torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            "head": torch.nn.Linear(48, 64),
        }
    )
    base = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(40):
        tokens = torch.randint(0, 64, (32, 8), generator=generator)
        logits = model["head"](model["encoder"](model["embed"](tokens)).mean(1))
        loss = torch.nn.functional.cross_entropy(logits, tokens.max(1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return base, {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="session")
def weights():
    """(base, tuned) state dictionaries."""
    return trained_pair()


@pytest.fixture(scope="session")
def pair_files(weights, tmp_path_factory):
    """The same as two safetensors files."""
    folder = tmp_path_factory.mktemp("pair")
    paths = []
    for name, tensors in zip(("base", "tuned"), weights, strict=True):
        path = folder / f"{name}.safetensors"
        save_file(tensors, path)
        paths.append(path)
    return tuple(paths)

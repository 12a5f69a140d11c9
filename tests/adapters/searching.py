"""Small layers and models that search for their locations, and steps of training for them."""

import pytest
import torch
from torch import nn

from loca_theory.adapters import CosineSpectrum, LoCALinear, parameter_groups
from loca_theory.transforms import idct2

EXCHANGES = ["swap", "swap-raw", "reselect"]
by_prune_and_regrow = pytest.mark.parametrize("search", EXCHANGES)

# A search, and another that goes on from its checkpoint.
PAIRS = [("central", "swap"), ("reselect", "central"), ("swap", "reselect"), ("swap", "swap")]

# A few dozen float64 operations of unit-sized values, and their dense oracles.
ROUNDING = 1e-11


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def spectrum(search="reselect", shape=(6, 9), count=10, **options):
    settings = {"zero_init": False, "scaling": 1.5, "location_search": search}
    return CosineSpectrum(shape, count, **settings | options).double()


def flat(layer):
    return layer.indices[:, 0] * int(layer.shape[1]) + layer.indices[:, 1]


def assert_distinct(layer):
    assert torch.unique(flat(layer)).shape == flat(layer).shape


def dense(layer, without=()):
    """ΔW from what the spectrum holds."""
    a = layer.coefficients.detach().double().clone()
    a[list(without)] = 0
    s = torch.zeros(layer.shape.tolist(), dtype=torch.float64)
    s.index_put_(tuple(layer.indices.T), a)
    return layer.scaling * idct2(s)


def close(actual, expected, tolerance=ROUNDING):
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * scale)


def backward(layer, seed=1, rows=7):
    x = normal(rows, int(layer.shape[1]), seed=seed)
    g = normal(rows, int(layer.shape[0]), seed=seed + 50)
    layer(x).backward(g)
    return x, g


def small(search="reselect", seed=0, dtype=torch.float64, **options):
    """Two layers, for batches of 16 × 12."""
    torch.manual_seed(seed)
    options = {"zero_init": False, "location_search": search, **options}
    model = nn.Sequential(
        LoCALinear(nn.Linear(12, 8), 9, seed=seed, name="first", **options),
        nn.Tanh(),
        LoCALinear(nn.Linear(8, 10), 7, seed=seed + 1, name="second", **options),
    )
    return model.to(dtype)


def batches(count, start=0):
    return [(normal(16, 12, seed=100 + t), normal(16, 10, seed=900 + t))
            for t in range(start, start + count)]  # fmt: skip


def spectra(model):
    return [m for m in model.modules() if isinstance(m, CosineSpectrum)]


def all_indices(model):
    return [s.indices.clone() for s in spectra(model)]


def same(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


def adamw(model, **options):
    """An optimiser of somebody who has never heard of locations."""
    return torch.optim.AdamW((p for p in model.parameters() if p.requires_grad),
                             **{"lr": 0.02, "weight_decay": 0.1, **options})  # fmt: skip


def in_groups(model):
    return torch.optim.AdamW(parameter_groups(model, lr=0.02, location_lr=0.02, weight_decay=0.1))


def train(model, optimizer, steps, start=0, run=None):
    for x, y in batches(steps, start):
        x, y = (part.to(next(model.parameters()).dtype) for part in (x, y))
        optimizer.zero_grad()
        ((run or model)(x) - y).square().mean().backward()
        optimizer.step()


def steps_of_regrowth(model, training):
    """Number of the step after which each layer exchanged, as they come."""
    happened = [[] for _ in spectra(model)]
    for number, layer in enumerate(spectra(model)):

        def noted(number=number, do=layer.prune_and_regrow):
            happened[number].append(training.steps_done)
            return do()

        layer.prune_and_regrow = noted
    return happened

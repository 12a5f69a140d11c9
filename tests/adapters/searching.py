"""Small layers and models that search for their locations, and steps of training for them."""

import pytest
import torch
from torch import nn

from loca_theory.adapters import (
    AlternatingSchedule,
    CosineSpectrum,
    LoCALinear,
    LocationTraining,
)
from loca_theory.transforms import idct2

EXCHANGES = ["swap", "swap-raw", "reselect"]
by_prune_and_regrow = pytest.mark.parametrize("search", EXCHANGES)

SEARCHES = ["central", "forward", "backward", "eight-direction", *EXCHANGES]

# A few dozen float64 operations of unit-sized values, and their dense oracles.
ROUNDING = 1e-11


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


# A phase of a step each; components move after every second step, by its gradient.
EACH_STEP = AlternatingSchedule(1, 1, None, recorded_steps=1)


def spectrum(search="reselect", shape=(6, 9), count=10, *, schedule=EACH_STEP, **options):
    """A float64 spectrum in a search, whose :class:`LocationTraining` is
    ``location_training``."""
    torch.manual_seed(0)
    settings = {"zero_init": False, "scaling": 1.5}
    layer = CosineSpectrum(shape, count, **settings | options).double()
    LocationTraining(layer, schedule, search=search, automatic=False)
    return layer


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


def small(seed=0, dtype=torch.float64, **options):
    """Two layers, for batches of 16 × 12."""
    torch.manual_seed(seed)
    options = {"zero_init": False, **options}
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


def coefficients(model):
    return [s.coefficients.detach().clone() for s in spectra(model)]


def locations(model):
    """The continuous locations; empty unless searches along a gradient have made them."""
    found = [getattr(s.search, "locations", None) for s in spectra(model)]
    return [u.detach().clone() for u in found if u is not None]


def everything(model):
    """Copies of the coefficients, the indices, and the continuous locations."""
    return [coefficients(model), all_indices(model), locations(model)]


def same(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


def same_state(first, second):
    """Whether two state dicts, or lists of them, are equal to the bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(
            same_state(value, second[key]) for key, value in first.items()
        )
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same_state, first, second))
    return first == second


def adamw(model, **options):
    """An optimiser of all trainable parameters."""
    return torch.optim.AdamW(
        (p for p in model.parameters() if p.requires_grad),
        **{"lr": 0.02, "weight_decay": 0.1, **options},
    )


def train(model, optimizer, steps, start=0, run=None, *, set_to_none=True):
    for x, y in batches(steps, start):
        x, y = (part.to(next(model.parameters()).dtype) for part in (x, y))
        optimizer.zero_grad(set_to_none)
        ((model if run is None else run)(x) - y).square().mean().backward()
        optimizer.step()


def steps_of_regrowth(model, training):
    """Number of the step after which each layer pruned and regrew, as they come."""
    happened = [[] for _ in spectra(model)]
    for number, layer in enumerate(spectra(model)):

        def noted(number=number, move=layer.search.move):
            happened[number].append(training.steps_done)
            return move()

        layer.search.move = noted
    return happened

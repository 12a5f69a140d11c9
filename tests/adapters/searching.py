"""Small layers and models that search for their locations, and steps of training for them."""

import pytest
import torch
from torch import nn

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, LoCALinear, follow
from loca_theory.adapters.search.regrow import PruneAndRegrow
from loca_theory.transforms import idct2

EXCHANGES = ["swap", "swap-raw", "reselect"]
by_prune_and_regrow = pytest.mark.parametrize("search", EXCHANGES)
SEARCHES = ["central", "forward", "backward", "eight-direction", *EXCHANGES]

# A few dozen float64 operations of unit-sized values, and their dense oracles.
ROUNDING = 1e-11

SHORT = AlternatingSchedule(2, 3, 10, recorded_steps=2)
# A phase of a step each; components move after every second step, by its gradient.
EACH_STEP = AlternatingSchedule(1, 1, None, recorded_steps=1)


def normal(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype)


def flat(layer):
    return layer.indices[:, 0] * int(layer.shape[1]) + layer.indices[:, 1]


def assert_distinct(layer):
    assert torch.unique(flat(layer)).shape == flat(layer).shape


def dense(layer, without=()):
    """ΔW from what the spectrum holds, in float64; components that share a location add up."""
    a = layer.coefficients.detach().double().clone()
    a[list(without)] = 0
    s = torch.zeros(layer.shape.tolist(), dtype=torch.float64)
    s.index_put_(tuple(layer.indices.T), a, accumulate=True)
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
    options = {"zero_init": False, "location_lr": 0.1, **options}
    model = nn.Sequential(
        LoCALinear(nn.Linear(12, 8), 9, seed=seed, name="first", **options),
        nn.Tanh(),
        LoCALinear(nn.Linear(8, 10), 7, seed=seed + 1, name="second", **options),
    )
    return model.to(dtype)


def in_phase(model, phase="both", lr=0.1):
    """Followed, in this phase until its training steps; returns its optimiser."""
    optimizer = torch.optim.SGD(model.parameters(), lr)
    follow(model, optimizer)
    for layer in spectra(model):
        layer.search.phase = phase
    return optimizer


def batches(count, start=0):
    return [
        (normal(16, 12, seed=100 + t), normal(16, 10, seed=900 + t))
        for t in range(start, start + count)
    ]


def spectra(model):
    return [m for m in model.modules() if isinstance(m, CosineSpectrum)]


def all_indices(model):
    return [s.indices.clone() for s in spectra(model)]


def coefficients(model):
    return [s.coefficients.detach().clone() for s in spectra(model)]


def offsets(model):
    return [s.offset.detach().clone() for s in spectra(model) if s.offset is not None]


def everything(model):
    """Copies of the coefficients, the indices, and the offsets of continuous locations."""
    return [coefficients(model), all_indices(model), offsets(model)]


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


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def adamw(model, **options):
    """An optimiser of all trainable parameters."""
    return torch.optim.AdamW(trained(model), **{"lr": 0.02, "weight_decay": 0.1, **options})


def sgd(model, **options):
    return torch.optim.SGD(trained(model), **{"lr": 0.1, **options})


def followed(make=adamw, **options):
    """A small model and the optimiser that its search follows."""
    model = small(**{"schedule": SHORT, **options})
    optimizer = make(model)
    follow(model, optimizer)
    return model, optimizer


def loss_of(model, step=0, rows=slice(None), run=None):
    x, y = (part.to(next(model.parameters()).dtype) for part in batches(1, step)[0])
    return ((model if run is None else run)(x[rows]) - y[rows]).square().mean()


def train(model, optimizer, steps, start=0, run=None, *, set_to_none=True):
    for step in range(start, start + steps):
        optimizer.zero_grad(set_to_none)
        loss_of(model, step, run=run).backward()
        optimizer.step()


def recording(layer, step=0):
    """In a search that records the gradient of the step after the first ``step``."""
    layer.search, layer.steps_done = PruneAndRegrow(layer), step
    layer.search.begin()
    return layer


def move(layer, step=0):
    """Which components this step moves."""
    layer.steps_done = step
    layer.search.before_step()
    return layer.search.prune_and_regrow(1.0)

"""Whole models under ``torch.compile(fullgraph=True)`` follow their search as the eager ones."""

import copy

import pytest
import torch
from peft import get_peft_model
from torch import nn

from loca_theory.adapters import LoCAConfig, follow

from .searching import all_indices, batches, close, coefficients, same, train
from .tiny_models import of_peft

# torch's own, while it traces
pytestmark = [of_peft, pytest.mark.filterwarnings("ignore")]

# And the number of graphs: of a start, of the phases of the search, and of the time after it.
SEARCHED = {
    "central": ({}, 3),
    "central, jointly": ({"joint": True}, 2),
    "central from a start": ({"init_locations": "gradient", "init_weights": True}, 4),
    "reselect": ({"location_search": "reselect"}, 2),
    "swap from a start": ({"location_search": "swap", "init_locations": "gradient"}, 3),
    "swap-raw": ({"location_search": "swap-raw"}, 2),
}
SLOW = set(SEARCHED) - {"central", "reselect"}


def adapted(**options):
    torch.manual_seed(0)
    layers = [nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 10)]
    settings = {
        "n_frequency": 9,
        "target_modules": ["0", "2", "4"],
        "init_weights": False,
        "location_lr": 0.1,
        "alternating_steps": 14,
        "coefficient_steps": 3,
        "location_steps": 3,
        "recorded_steps": 2,
    }
    config = LoCAConfig(**settings | options)
    return get_peft_model(nn.Sequential(*layers).double(), config, autocast_adapter_dtype=False)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.deep if k in SLOW else ()) for k in SEARCHED]
)
def test_a_compiled_model_searches_as_the_eager_one(kind):
    """In one graph per phase, whichever layers record in a step."""
    torch._dynamo.reset()
    options, expected = SEARCHED[kind]
    eager = adapted(**options)
    other = copy.deepcopy(eager)
    before, graphs = all_indices(eager), []

    def backend(graph, examples):
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, examples)

    compiled = torch.compile(other, fullgraph=True, backend=backend)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.05) for m in (eager, other)]
    for model, optimizer in zip((eager, other), optimizers, strict=True):
        follow(model, optimizer)
    for step in range(18):
        train(eager, optimizers[0], 1, start=step)
        train(other, optimizers[1], 1, start=step, run=compiled)
        assert same(all_indices(other), all_indices(eager)), step
        for ours, theirs in zip(coefficients(other), coefficients(eager), strict=True):
            close(ours, theirs)
    assert not same(all_indices(eager), before)
    assert len(graphs) == expected
    x = batches(1)[0][0]
    with torch.no_grad():
        close(compiled(x), eager(x))

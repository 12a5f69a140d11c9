"""W + ΔW between the micro-batches of an optimiser step."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from loca_theory.adapters import LoCALinear, operators
from loca_theory.transforms import dct_matrix

P, Q = 6, 9


def normal(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.fixture
def layer():
    made = LoCALinear(nn.Linear(Q, P).double(), 12, implementation="fft")
    made.spectrum.coefficients.data = normal(12, seed=0)
    return made


@pytest.fixture
def formed(monkeypatch):
    """The calls that form ΔW."""
    calls, form = [], operators.form
    monkeypatch.setattr(operators, "form", lambda *given: calls.append(1) or form(*given))
    return calls


def assert_dense(layer, seed=1):
    """Output and gradients of a pass are those of the dense definition."""
    spectrum, x = layer.spectrum, normal(5, Q, seed=seed)
    dtype = spectrum.coefficients.dtype
    x = x.to(dtype).requires_grad_()
    a, c, d = spectrum.coefficients.detach().requires_grad_(), dct_matrix(P), dct_matrix(Q)
    flat = spectrum.indices[:, 0] * Q + spectrum.indices[:, 1]
    s = torch.zeros(P * Q, dtype=torch.float64).index_add(0, flat, a.double()).view(P, Q)
    weight = layer.base.weight.double() + spectrum.scaling * c.T @ s @ d
    expected = nn.functional.linear(x.double(), weight, layer.base.bias.double())
    y = layer(x)
    g = normal(5, P, seed=seed + 1).to(dtype)
    found = torch.autograd.grad(y, [x, spectrum.coefficients], g)
    wanted = torch.autograd.grad(expected, [x, a], g.double())
    # At most 100 rounded operations on numbers up to 10.
    near = {"rtol": 0, "atol": 1000 * torch.finfo(dtype).eps}
    for mine, theirs in zip((y, *found), (expected, *wanted), strict=True):
        torch.testing.assert_close(mine.detach().double(), theirs.detach().double(), **near)


def accumulate(layer, passes=3):
    for number in range(passes):
        assert_dense(layer, seed=10 * number)


def test_it_is_formed_once_per_step(layer, formed):
    counts = []
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(3):
        formed.clear()
        accumulate(layer)
        layer.spectrum.coefficients.grad = normal(12, seed=step)
        optimizer.step()
        counts.append(len(formed))
    # The second pass of the first step shows that coefficients are used again.
    assert counts == [2, 1, 1]


def test_with_one_pass_per_step_nothing_is_kept(layer, formed):
    for step in range(3):
        assert_dense(layer, seed=10 * step)
        assert layer.spectrum._folded._stored is None
        layer.spectrum.coefficients.data += 1
    assert len(formed) == 3


CHANGES = {
    "coefficients, behind autograd's back": lambda s, _: s.coefficients.data.mul_(1.5),
    "other memory for coefficients": lambda s, _: setattr(s.coefficients, "data", -s.coefficients),
    "indices": lambda s, _: s.set_indices(s.indices.flip(1).clamp(max=P - 1)),
    "indices in place": lambda s, _: s.set_indices((s.indices + 1) % P),
    "W, behind autograd's back": lambda _, base: base.weight.data.mul_(1.5),
    "one entry of W": lambda _, base: base.weight.detach()[2, 3].add_(1.0),
    "W": lambda _, base: setattr(base, "weight", nn.Parameter(-base.weight, requires_grad=False)),
    "scaling": lambda s, _: setattr(s, "scaling", 3.0),
    "loaded": lambda s, _: s.load_state_dict(
        {**s.state_dict(), "coefficients": normal(12, seed=9)}
    ),
    "dtype": lambda s, base: (s.float(), base.float()),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_change_forms_it_anew(layer, formed, change):
    accumulate(layer)
    formed.clear()
    assert_dense(layer)
    assert not formed
    change(layer.spectrum, layer.base)
    assert_dense(layer)
    assert len(formed) == 1


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_checkpointing_keeps_nothing(layer, is_reentrant):
    for number in range(3):
        x = normal(5, Q, seed=number).requires_grad_()
        checkpoint(layer, x, use_reentrant=is_reentrant).sum().backward()
        assert layer.spectrum._folded._stored is None
    accumulate(layer)


def test_evaluation_holds_no_copy(layer):
    for drop in (
        lambda: layer.eval(),
        lambda: torch.no_grad()(layer)(torch.zeros(1, Q, dtype=torch.float64)),
    ):
        accumulate(layer)
        assert layer.spectrum._folded._stored is not None
        drop()
        assert layer.spectrum._folded._stored is None


def test_a_copy_of_the_layer_has_none_of_its_own(layer):
    accumulate(layer)
    other = copy.deepcopy(layer)
    assert other.spectrum._folded._stored is None
    other.spectrum.coefficients.data.mul_(2)
    accumulate(other)
    assert_dense(layer)

"""The operators of ΔW against dense products and location gradients one by one."""

import math
from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from loca_theory.adapters import increment as increments
from loca_theory.adapters import kernels, linear_operator
from loca_theory.adapters.increment import increment
from loca_theory.adapters.linear_operator import increment_linear
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.locations.gradient import NEIGHBOURS
from loca_theory.transforms.matrices import dct_matrix

from .searching import normal

IMPLEMENTATIONS = ["implicit", "materialised"]
RULES = list(NEIGHBOURS)
by_implementation = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
by_rule = pytest.mark.parametrize("rule", RULES)

SHAPES = [(1, 1), (1, 6), (7, 1), (5, 8)]
by_shape = pytest.mark.parametrize("shape", SHAPES, ids=[f"{p}x{q}" for p, q in SHAPES])
SCALING = 0.7
# A few hundred float64 operations, each of 1.1e-16 of what it adds up.
ROUNDING = 1e-10


def border_and_shared_indices(shape):
    """One location three times, the corners, the middle of the sides; no more than fit."""
    p, q = shape
    rows = [p // 2, p // 2, 0, p - 1, p // 2, 0, p - 1, 0, p // 2, min(1, p - 1), p // 2]
    columns = [q // 2, q // 2, 0, q - 1, q // 2, q - 1, 0, q // 2, 0, min(2, q - 1), q - 1]
    return torch.tensor([rows, columns]).T[: p * q].contiguous()


def dense_increment(a, indices, shape):
    c, d = (dct_matrix(n, dtype=torch.float64) for n in shape)
    spectrum = torch.zeros(shape, dtype=a.dtype).index_put(tuple(indices.T), a, accumulate=True)
    return SCALING * c.T @ spectrum @ d


def one_by_one(rule, g_w, a, indices, shape):
    """The location gradient in the words of its documentation, one component after another."""
    p, q = shape
    c, d = (dct_matrix(n, dtype=torch.float64) for n in shape)
    z = (c @ g_w @ d.T).tolist()

    def value(row, column):
        return z[min(max(row, 0), p - 1)][min(max(column, 0), q - 1)]

    gradient = []
    for a_n, (i, j) in zip(a.tolist(), indices.tolist(), strict=True):
        factor, centre = SCALING * a_n, value(i, j)
        ahead, behind = (value(i + 1, j), value(i, j + 1)), (value(i - 1, j), value(i, j - 1))
        of = {
            "central": [factor / 2 * (ahead[k] - behind[k]) for k in (0, 1)],
            "forward": [factor * (ahead[k] - centre) for k in (0, 1)],
            "backward": [factor * (centre - behind[k]) for k in (0, 1)],
            "eight-direction": [0.0, 0.0],
        }[rule]
        steepest = 0.0 if rule == "eight-direction" else -math.inf
        for down, along in product((-1, 0, 1), repeat=2):
            inside = 0 <= i + down < p and 0 <= j + along < q
            if (down, along) != (0, 0) and inside:
                length = math.hypot(down, along)
                slope = factor * (z[i + down][j + along] - centre) / length
                if slope < steepest:
                    steepest, of = slope, [slope * down / length, slope * along / length]
        gradient.append(of)
    return torch.tensor(gradient, dtype=torch.float64)


def assert_close(actual, expected):
    actual, expected = actual.detach(), expected.detach()
    assert actual.shape == expected.shape
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=ROUNDING, atol=ROUNDING * scale)


def apply(x, weight, bias, a, locations, indices, shape, rule="central", implementation="implicit"):
    return increment_linear(
        x,
        weight,
        bias,
        a,
        locations,
        indices,
        SparsityPattern.of(indices, shape),
        rows=shape[0],
        scaling=SCALING,
        rule=rule,
        implementation=implementation,
    )


def case(shape, batch=(5,), terms="weight and bias"):
    """Tensors of one call: x, W, b, a, l, locations."""
    p, q = shape
    indices = border_and_shared_indices(shape)
    return (
        normal(*batch, q, seed=1).requires_grad_(),
        None if terms == "increment alone" else normal(p, q, seed=2),
        normal(p, seed=3).requires_grad_() if terms == "weight and bias" else None,
        normal(len(indices), seed=4).requires_grad_(),
        indices.double().requires_grad_(),
        indices,
    )


def assert_it_is_the_dense_form(shape, batch, terms, implementation, rule, device="cpu"):
    """The operator on a device; the dense form on the CPU."""
    tensors = x, weight, bias, a, locations, indices = case(shape, batch, terms)
    y = apply(*(t if t is None else t.to(device) for t in tensors), shape, rule, implementation)
    assert y.device.type == torch.device(device).type
    delta = dense_increment(a, indices, shape)
    delta.retain_grad()
    total = delta if weight is None else weight + delta
    expected = torch.nn.functional.linear(x, total, bias)
    assert_close(y.cpu(), expected)

    g = normal(*y.shape, seed=5)
    leaves = [x, a] if bias is None else [x, a, bias]
    *gradients, of_l = torch.autograd.grad(y, [*leaves, locations], g.to(device))
    *expected_gradients, g_w = torch.autograd.grad(expected, [*leaves, delta], g)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        assert_close(ours, theirs)
    assert_close(of_l, one_by_one(rule, g_w, a, indices, shape))


FORMS = {
    **{f"{rule}, {p}x{q}": ((p, q), (6,), "weight", rule) for rule in RULES for p, q in SHAPES},
    **{
        f"{batch} tokens": ((5, 8), batch, "weight and bias", "eight-direction")
        for batch in [(), (0,), (1,), (2, 3), (2, 0)]
    },
    "increment alone": ((5, 8), (5,), "increment alone", "central"),
}


@by_implementation
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_output_and_gradients_are_those_of_the_dense_form(implementation, form, device):
    shape, batch, terms, rule = form
    assert_it_is_the_dense_form(shape, batch, terms, implementation, rule, device)


@by_implementation
@by_rule
def test_tokens_are_summed_over_blocks(implementation, rule, monkeypatch, device):
    for name in ("_BLOCK", "_BLOCK_ON_DEVICE"):
        monkeypatch.setattr(kernels, name, 1)
    assert len(list(kernels.token_blocks(torch.empty(50, 5, device=device), 8))) == 4
    assert_it_is_the_dense_form((5, 8), (50,), "weight and bias", implementation, rule, device)


FROZEN = [["x"], ["a"], ["locations"], ["bias", "a", "locations"]]


@by_implementation
@by_rule
@pytest.mark.parametrize("frozen", FROZEN, ids=str)
def test_what_is_frozen_changes_nothing_else(implementation, rule, frozen):
    names = ["x", "weight", "bias", "a", "locations", "indices"]
    arguments = dict(zip(names, case((9, 4)), strict=True))
    leaves = [name for name in ("x", "bias", "a", "locations") if name not in frozen]

    def outputs():
        y = apply(*arguments.values(), (9, 4), rule, implementation)
        return [y, *torch.autograd.grad(y.square().sum(), [arguments[name] for name in leaves])]

    expected = outputs()
    with torch.no_grad():
        assert torch.equal(apply(*arguments.values(), (9, 4), rule, implementation), expected[0])
    for name in frozen:
        arguments[name] = None if name == "locations" else arguments[name].detach()
    for ours, theirs in zip(outputs(), expected, strict=True):
        assert_close(ours, theirs)


@by_implementation
def test_memory_layout_does_not_matter(implementation):
    shape = (5, 8)
    _, weight, bias, a, locations, indices = case(shape)
    x, g, turned = normal(8, 12, seed=1).T[::2], normal(5, 6, seed=5).T, weight.T.contiguous().T
    results = []
    for tokens, w, of_y in ((x, turned, g), (x.contiguous(), weight, g.contiguous())):
        y = apply(tokens, w, bias, a, locations, indices, shape, implementation=implementation)
        results.append([y, *torch.autograd.grad(y, [a, locations], of_y)])
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs)


@by_rule
@by_shape
def test_the_increment_is_the_dense_one_and_so_are_its_gradients(rule, shape):
    _, _, _, a, locations, indices = case(shape)
    delta = increment(a, locations, indices, shape, SCALING, rule)
    expected = dense_increment(a, indices, shape)
    assert_close(delta, expected)
    g = normal(*shape, seed=5)
    of_a, of_l = torch.autograd.grad(delta, [a, locations], g)
    assert_close(of_a, torch.autograd.grad(expected, a, g)[0])
    assert_close(of_l, one_by_one(rule, g, a, indices, shape))
    fixed = increment(a, None, indices, shape, SCALING, rule)
    assert_close(fixed, expected)
    assert_close(torch.autograd.grad(fixed, a, g)[0], of_a)


@by_rule
@pytest.mark.parametrize("shape", [(5, 8), (9, 4), (6, 6)], ids=str)
@pytest.mark.parametrize("by", ["samples", "one side", "both sides"])
def test_samples_and_transforms_along_one_side_or_both_are_the_same(
    shape, by, rule, monkeypatch, device
):
    calls = []
    pays = {"sampling_pays": by == "samples", "one_sided_pays": by == "one side"}
    for module, name in ((linear_operator, "sampling_pays"), (kernels, "one_sided_pays")):
        monkeypatch.setattr(
            module, name, lambda *_, name=name, **__: calls.append(name) or pays[name]
        )
    assert_it_is_the_dense_form(shape, (6,), "weight and bias", "materialised", rule, device)
    assert calls == ["one_sided_pays", "sampling_pays"] + ["one_sided_pays"] * (by != "samples")


class Ignored(torch.autograd.Function):
    """A function that tells autograd its input does not matter."""

    @staticmethod
    def forward(_, y):
        return y.clone()

    @staticmethod
    def backward(*_):
        return None


@by_implementation
def test_an_output_whose_gradient_is_undefined_has_none_to_give(implementation):
    shape = (5, 8)
    arguments = case(shape)
    y = apply(*arguments, shape, implementation=implementation)
    (Ignored.apply(y).sum() + arguments[0].sum()).backward()
    assert_close(arguments[0].grad, torch.ones_like(arguments[0]))


# The registration states different results with and without forming ΔW.
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
@by_implementation
@pytest.mark.parametrize("operator", ["linear", "transform", "all gradients", "that of a"])
def test_torch_accepts_the_registration(operator, implementation):
    shape, kind, tests = (5, 8), (SCALING, "central", implementation), None
    x, weight, bias, a, locations, indices = case(shape)
    pattern = list(SparsityPattern.of(indices, shape))
    if operator == "transform":
        function, arguments = increments._opaque_idct2, (normal(*shape).requires_grad_(),)
    elif operator == "linear":
        function = linear_operator._linear_op
        arguments = (x, weight, bias, a, locations, indices, pattern, 5, *kind, True)
    else:
        needs = [operator == "all gradients", True, operator == "all gradients"]
        x, a = x.detach(), a.detach()
        _, saved = linear_operator._linear(
            x, weight, None, a, None, indices, pattern, 5, *kind, True
        )
        function, tests = linear_operator._linear_backward_op, ("test_schema", "test_faketensor")
        g = normal(5, 5, seed=5)
        arguments = (g, x, weight, saved, a, indices, pattern, 8, *kind, needs)
    tests = {} if tests is None else {"test_utils": tests}
    assert set(torch.library.opcheck(function, arguments, **tests).values()) == {"SUCCESS"}


class Operations(TorchDispatchMode):
    """Counts the operations that compute something."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += not function.is_view
        return function(*args, **(kwargs or {}))


def test_all_neighbours_are_read_at_once():
    """A GPU needs longer to start an operation than for these."""
    shape = (5, 8)
    indices = border_and_shared_indices(shape)
    z, flat = normal(*shape), indices[:, 0] * shape[1] + indices[:, 1]
    with Operations() as few:
        sample = kernels.reader(z, indices, flat, has_neighbours=True)
        values = {by: sample(*by) for by in product((-1, 0, 1), repeat=2)}
    assert few.count <= 8  # of rows and columns: sums and limits; the steps; positions; the entries
    for (down, along), neighbour in values.items():
        rows, columns = (indices + torch.tensor([down, along])).T
        assert torch.equal(neighbour, z[rows.clamp(0, 4), columns.clamp(0, 7)])
    with Operations() as operations:
        entries = kernels.reader(z, indices, flat, has_neighbours=False)(0, 0)
    assert operations.count == 1
    assert torch.equal(entries, values[0, 0])

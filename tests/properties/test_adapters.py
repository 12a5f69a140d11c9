"""Properties of the operators of ΔW over random shapes, counts, locations and tokens."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loca_theory.adapters import AlternatingSchedule, CosineSpectrum, follow
from loca_theory.adapters.increment import increment
from loca_theory.adapters.indices import continuous, rounded
from loca_theory.adapters.linear_operator import increment_linear
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.locations.gradient import NEIGHBOURS
from loca_theory.transforms.matrices import dct_matrix

reproducible = settings(max_examples=20, deadline=None, derandomize=True, database=None)

# Comparisons are of a few hundred float64 operations.
ROUNDING = 1e-10

implementations = st.sampled_from(["implicit", "materialised"])
rules = st.sampled_from(sorted(NEIGHBOURS))
sides = st.integers(1, 12)


@st.composite
def cases(draw):
    """A shape, any number of locations in it (with repetition), tokens and values."""
    p, q = draw(sides), draw(sides)
    set_indices = st.tuples(st.integers(0, p - 1), st.integers(0, q - 1))
    indices = torch.tensor(draw(st.lists(set_indices, min_size=1, max_size=p * q)))
    tokens = draw(st.integers(0, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    return (p, q), indices, normal(len(indices)), normal(tokens, q), normal(p, q)


def spectrum_of(indices, a, shape):
    spectrum = torch.zeros(shape, dtype=torch.float64)
    return spectrum.index_put((indices[:, 0], indices[:, 1]), a, accumulate=True)


def assert_close(actual, expected):
    actual, expected = actual.detach(), expected.detach()
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=ROUNDING, atol=ROUNDING * scale)


@reproducible
@given(cases(), implementations, rules)
def test_the_layer_is_the_dense_one_and_so_are_its_gradients(case, implementation, rule):
    shape, indices, a, x, weight = case
    c, d = (dct_matrix(n, dtype=torch.float64) for n in shape)
    for leaf in (a, x):
        leaf.requires_grad_()
    y = increment_linear(
        x, weight, None, a, None, indices, SparsityPattern.of(indices, shape),
        rows=shape[0], scaling=1.5, rule=rule, implementation=implementation,
    )  # fmt: skip
    expected = x @ (weight + 1.5 * c.T @ spectrum_of(indices, a, shape) @ d).T
    assert_close(y, expected)
    g = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).view_as(y)
    wanted = torch.autograd.grad(expected, [a, x], g)
    for mine, theirs in zip(torch.autograd.grad(y, [a, x], g), wanted, strict=True):
        assert_close(mine, theirs)


@reproducible
@given(cases(), rules)
def test_all_implementations_have_the_same_location_gradient(case, rule):
    shape, indices, a, x, weight = case
    pattern, found = SparsityPattern.of(indices, shape), []
    g = torch.cos(torch.arange(len(x) * shape[0], dtype=torch.float64)).view(-1, shape[0])
    for implementation in ("implicit", "materialised"):
        locations = indices.double().requires_grad_()
        rest = {"scaling": 1.5, "rule": rule, "implementation": implementation}
        y = increment_linear(x, weight, None, a, locations, indices, pattern, rows=shape[0], **rest)
        found += torch.autograd.grad(y, locations, g)
        if implementation != "implicit":
            delta = increment(a, locations, indices, shape, 1.5, rule)
            found += torch.autograd.grad(delta, locations, g.T @ x)
    for other in found[1:]:
        assert_close(other, found[0])


@reproducible
@given(cases())
def test_the_end_of_a_search_keeps_the_increment_and_separates_the_components(case):
    shape, indices, a, _, _ = case
    spectrum = CosineSpectrum(shape, len(a), schedule=AlternatingSchedule()).double()
    follow(spectrum, torch.optim.SGD(spectrum.parameters(), 0.1))
    spectrum.set_indices(indices)
    with torch.no_grad():
        spectrum.coefficients.copy_(a)
    before = spectrum.increment()
    spectrum.finish_search()
    assert torch.unique(spectrum.indices, dim=0).shape == indices.shape
    assert bool(((spectrum.indices >= 0) & (spectrum.indices < torch.tensor(shape))).all())
    assert_close(spectrum.increment(), before)


@reproducible
@given(sides, sides, st.data())
def test_indices_of_a_new_layer_are_distinct_and_continuous_locations_round_to_them(p, q, data):
    count = data.draw(st.integers(1, p * q))
    indices = CosineSpectrum((p, q), count, seed=data.draw(st.integers(0, 2**32))).indices
    assert torch.unique(indices, dim=0).shape == (count, 2)
    assert torch.equal(rounded(continuous(indices, (p, q)), (p, q)), indices)

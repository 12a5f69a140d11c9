"""Random problems: their two matrices against the network and its samples, and what they are."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import mse_loss

from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import ProblemFamily, draw, network
from loca_theory.convergence.state import Rates, State

SAMPLES = 40
SEED = 3
# Sums of some hundred float64 products of similar size, in another order.
ROUNDING = 1e-12

LOSSES = {
    "mean": mse_loss,
    "mean-of-samples": lambda output, target: (output - target).square().sum(0).mean(),
    "sum": lambda output, target: mse_loss(output, target, reduction="sum"),
}


def textbook_dct(size):
    """Rows are the orthonormal cosines."""
    c = np.empty((size, size))
    for k in range(size):
        for n in range(size):
            scale = math.sqrt((1 if k == 0 else 2) / size)
            c[k, n] = scale * math.cos(math.pi * (2 * n + 1) * k / (2 * size))
    return torch.from_numpy(c)


class Network:
    """One problem as it is printed: three layers, samples, and a loss that autograd knows."""

    def __init__(self, family, interpretation, number, indices, coefficients):
        parts = network(family, interpretation, SEED, number, samples=SAMPLES)
        self.w1, self.w3, self.x = map(torch.from_numpy, parts)
        self.cosines, self.loss_of = textbook_dct(family.size), LOSSES[interpretation.loss]
        self.labels = self.output(self.spectrum(indices, coefficients))

    def spectrum(self, indices, coefficients):
        """Dense F; components at one location add up."""
        f = torch.zeros(self.w1.numel(), dtype=torch.float64)
        for index, a in zip(indices.tolist(), coefficients, strict=True):
            f = f + a * torch.nn.functional.one_hot(torch.tensor(index), f.numel())
        return f.view_as(self.w1)

    def output(self, f):
        return self.w3 @ (self.cosines.T @ f @ self.cosines) @ self.w1 @ self.x

    def loss(self, f):
        return self.loss_of(self.output(f), self.labels)

    def gradient(self, f):
        f = f.clone().requires_grad_()
        return torch.autograd.grad(self.loss(f), f)[0].flatten()


def scene(size, loss, condition=None, components=4, problems=3, **interpretation):
    """A batch in the middle of being learned, and its networks."""
    family, interpretation = (
        ProblemFamily(size, components, condition),
        Interpretation(loss=loss, **interpretation),
    )
    batch = draw(family, interpretation, SEED, range(problems), samples=SAMPLES)
    state = State(batch, interpretation, Rates())
    generator = torch.Generator().manual_seed(size)
    shape = (problems, components)
    state.coefficients = torch.randn(shape, dtype=torch.float64, generator=generator)
    indices = torch.randint(size**2, shape, generator=generator)
    # Two of one problem share a location.
    indices[0, 1] = indices[0, 3]
    state.set_indices(indices)
    networks = [
        Network(family, interpretation, n, batch.indices[n], batch.coefficients[n])
        for n in range(problems)
    ]
    return state, networks


def assert_close(actual, expected, tolerance=ROUNDING):
    assert actual.shape == expected.shape
    assert float((actual - expected).norm()) <= tolerance * float(expected.norm())


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("size", "condition"), [(6, None), (5, 1.0), (5, 30.0)], ids=str)
def test_gradient_loss_and_curvature_are_those_of_the_network(size, loss, condition):
    state, networks = scene(size, loss, condition)
    relative, h = state.relative_loss(), state.problems.hessian(state.indices)
    for n, net in enumerate(networks):
        indices = state.indices[n]
        f, nothing = net.spectrum(indices, state.coefficients[n]), torch.zeros(size, size).double()
        z = net.gradient(f)
        assert_close(state.gradient()[n], z)
        assert_close(state.own_gradient()[n], z[indices])
        expected = net.loss(f) / net.loss(nothing)
        assert float(relative[n]) == pytest.approx(float(expected), rel=ROUNDING)
        dense = torch.autograd.functional.hessian(net.loss, nothing).view(size**2, size**2)
        assert_close(state.curvature[n], dense.diagonal())
        assert_close(h[n], dense[indices][:, indices])


# --- what a problem depends on ---


@pytest.mark.parametrize("condition", [None, 30.0], ids="condition {}".format)
def test_a_problem_depends_on_its_number_alone(condition):
    family, interpretation = ProblemFamily(5, 3, condition), Interpretation()
    all_problems = draw(family, interpretation, SEED, range(12), samples=SAMPLES)
    subset = draw(family, interpretation, SEED, range(4, 7), samples=SAMPLES)
    for name, values in vars(subset).items():
        assert torch.equal(values, getattr(all_problems, name)[4:7]), name


def test_locations_and_start_are_distinct_and_independent():
    problems = 2000
    batch = draw(ProblemFamily(), Interpretation(), SEED, range(problems), samples=1)
    for indices in (batch.indices, batch.start):
        assert bool((indices.sort(1).values.diff(dim=1) > 0).all())
        assert int(indices.min()) == 0
        assert int(indices.max()) == 35
    hits = int((batch.indices[:, :, None] == batch.start[:, None, :]).any(2).sum())
    # Hypergeometric: 3 of 36 locations are true, 3 are drawn.
    mean, variance = 3 * 3 / 36, 3 * (3 / 36) * (33 / 36) * (33 / 35)
    assert abs(hits - problems * mean) < 4.5 * math.sqrt(problems * variance)


# --- fixed weights ---


@pytest.mark.parametrize("spread", ["variance", "standard-deviation"])
@pytest.mark.parametrize("condition", [1.0, 7.0, 1e4], ids="condition {:g}".format)
@pytest.mark.parametrize("size", [2, 6, 24], ids="K={}".format)
def test_weights_have_the_condition_number_and_norm_that_are_stated(size, condition, spread):
    interpretation = Interpretation(spread=spread)
    w1, w3, _ = network(ProblemFamily(size, 2, condition), interpretation, SEED, 0, samples=1)
    variance = (0.2 if spread == "variance" else 0.04) * math.sqrt(6 / size)
    for w in (w1, w3):
        values = np.linalg.svd(w, compute_uv=False)
        # The smallest singular value has an absolute error of ε times the largest.
        assert values[0] / values[-1] == pytest.approx(condition, rel=1e-14 * size * condition)
        steps = np.diff(np.log(values))
        np.testing.assert_allclose(steps, steps[0], atol=1e-13 * size * condition)
        assert np.sum(w**2) == pytest.approx(size**2 * variance, rel=ROUNDING)
    assert not np.isclose(w1, w3).any()


def test_printed_weights_and_data_have_the_printed_variances():
    w1, w3, x = network(ProblemFamily(), Interpretation(), SEED, 0)
    assert w1.shape == w3.shape == (6, 6)
    assert x.shape == (6, 5000)
    weights = np.stack(
        [
            np.stack(network(ProblemFamily(), Interpretation(), SEED, n, samples=1)[:2])
            for n in range(300)
        ]
    )
    for values, variance in ((x, 20), (weights, 0.2)):
        # The mean square of n normal numbers has the relative variance 2/n.
        assert abs((values**2).mean() / variance - 1) < 4.5 * math.sqrt(2 / values.size)
        assert abs(values.mean()) < 4.5 * math.sqrt(variance / values.size)

"""Rotations of the pretrained weights: their tangent spaces against PEFT's layers; exact errors."""

import math

import numpy as np
import pytest
import torch
from peft import BOFTConfig, HRAConfig, OFTConfig, PsoftConfig, RoadConfig, get_peft_model
from peft.tuners.boft import layer as boft_layer
from scipy import stats
from torch import nn

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, approximate, exact_error
from loca_theory.expressivity.matrices import dense_errors, mean_retained_energies
from loca_theory.expressivity.methods.pretrained import multiplicative

from .dense import gaussian, projected

ROTATIONS = ["OFT", "BOFT", "HRA", "RoAd", "PSOFT"]
SHAPES = [(8, 8, 2), (12, 8, 2), (8, 20, 4), (24, 16, 3), (16, 64, 10)]
CONFIGS = {
    "OFT": lambda method, budget: OFTConfig(
        r=0, oft_block_size=method.block(budget), use_cayley_neumann=False
    ),
    "BOFT": lambda method, budget: BOFTConfig(boft_block_size=method.block(budget)),
    "HRA": lambda method, budget: HRAConfig(r=2 * method.pairs(budget)),
    "RoAd": lambda method, budget: RoadConfig(
        variant="road_1", group_size=64 if budget.p % 64 == 0 else budget.p
    ),
    "PSOFT": lambda method, budget: PsoftConfig(r=method.side(budget), psoft_alpha=32),
}


class Adapted:
    """A layer of PEFT in double precision, which begins as the identity."""

    def __init__(self, name, budget, weights):
        self.method, self.budget = METHODS[name], budget
        linear = nn.Linear(budget.q, budget.p, bias=False)
        linear.weight.data = torch.from_numpy(weights).float()
        config = CONFIGS[name](self.method, budget)
        config.target_modules = ["0"]
        self.model = get_peft_model(nn.Sequential(linear), config).double()
        self.trained = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        self.numbers = sum(parameter.numel() for parameter in self.trained)
        if name == "HRA":
            # The vectors that the method draws from its own seed.
            rng = np.random.default_rng(np.random.default_rng(7).integers(1 << 63, size=4))
            half = torch.from_numpy(rng.standard_normal((budget.q, self.method.pairs(budget))))
            self.trained[0].data = half.repeat_interleave(2, dim=1)
        if name == "PSOFT":
            # PEFT decomposes in single precision.
            layer, s = self.model.base_model.model[0], self.method.side(budget)
            u, values, vh = torch.linalg.svd(torch.from_numpy(weights))
            scaled = u[:, :s] * values[:s] / layer.scaling["default"]
            layer._set_psoft_ab_cache_buffers("default", vh[:s], scaled)

    def weight(self):
        return self.model(torch.eye(self.budget.q, dtype=torch.float64)).T

    def atoms(self):
        """The derivative of the weight with respect to every trained number, as rows."""
        entries = self.weight().flatten()
        rows = [torch.autograd.grad(entry, self.trained, retain_graph=True) for entry in entries]
        return np.array([torch.cat([part.flatten() for part in row]).numpy() for row in rows]).T


def single(matrix):
    """Rounded to float32, so that PEFT's weights are the same."""
    return matrix.astype(np.float32).astype(np.float64)


@pytest.fixture(autouse=True)
def without_extension(monkeypatch):
    """BOFT does not try to compile its extension for CUDA."""
    monkeypatch.setattr(boft_layer, "get_fbd_cuda", lambda: None)


@pytest.fixture(params=SHAPES[:4], ids=str)
def budget(request):
    return Budget(*request.param)


@pytest.mark.parametrize("name", ROTATIONS)
def test_the_tangent_space_is_that_of_pefts_layer(name, budget):
    weights, matrix = single(gaussian(budget.p, budget.q, 1)), gaussian(budget.p, budget.q)
    layer, method = Adapted(name, budget, weights), METHODS[name]
    assert layer.numbers == method.parameters(budget) <= budget.numbers
    np.testing.assert_allclose(layer.weight().detach(), weights, atol=1e-6)
    atoms = layer.atoms()
    assert np.linalg.matrix_rank(atoms, tol=1e-5) == method.dimension(budget)
    fit = approximate(matrix, name, budget, np.random.default_rng(7), weights=weights).numpy()
    np.testing.assert_allclose(fit, projected(matrix, atoms, 1e-6), atol=1e-5)
    # With known weights the mean is the energy of that projection, except for the vectors of HRA.
    rng = np.random.default_rng(7)
    (mean,) = mean_retained_energies(matrix, [METHODS[name]], [budget], rng, weights=weights)[name]
    assert mean == pytest.approx(np.sum(fit**2))


@pytest.mark.parametrize("name", ROTATIONS)
def test_a_small_step_of_pefts_layer_is_in_the_tangent_space_but_for_its_square(name):
    budget = Budget(12, 8, 2)
    weights, far = single(gaussian(12, 8, 1)), []
    for size in (1e-2, 1e-3):
        layer = Adapted(name, budget, weights)
        before, rng = layer.weight().detach(), torch.Generator().manual_seed(0)
        for parameter in layer.trained:
            step = torch.randn(parameter.shape, dtype=torch.float64, generator=rng)
            parameter.data += size * step
        change = (layer.weight() - before).detach()
        inside = approximate(change, name, budget, np.random.default_rng(7), weights=weights)
        far.append(float((change - inside).norm() / change.norm()))
    assert far[1] < 0.02
    # Ten times smaller a step, ten times smaller a part of it outside; third orders are 1e-2 of it.
    # What RoAd reaches is linear, with any step.
    assert far[0] < 1e-12 if name == "RoAd" else far[0] / far[1] == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("name", [*ROTATIONS, "Super-Tuning", "TinyLoRA", "BD-LoRA"])
def test_exact_errors_are_the_means_of_dense_draws(name):
    """At five shapes; of all 40 comparisons, one is wrong for one seed in 10⁴."""
    for shape in SHAPES:
        budget = Budget(*shape)
        seeds = [(np.random.default_rng([1, i]), np.random.default_rng([2, i])) for i in range(60)]
        errors = np.array([dense_errors(METHODS[name], [budget], *pair)[0] for pair in seeds])
        limit = stats.t.isf(1e-4 / 2 / 40, len(errors) - 1) * errors.std(ddof=1) / math.sqrt(60)
        assert abs(errors.mean() - exact_error(name, budget)) < limit, shape


@pytest.mark.parametrize("name", ROTATIONS)
def test_over_random_weights_every_matrix_retains_the_same_on_average(name):
    """At a matrix whose energy is in a few coordinates; wrong for one seed in 10⁴."""
    matrix, budget = np.ones((8, 6)) + gaussian(8, 6) * np.arange(6), Budget(8, 6, 2)
    exact = mean_retained_energies(matrix, [METHODS[name]], [budget])[name][0]
    dimension = METHODS[name].dimension(budget)
    assert exact == pytest.approx(dimension / 48 * np.sum(matrix**2))
    draws = [
        float(approximate(matrix, name, budget, np.random.default_rng([3, i])).square().sum())
        for i in range(400)
    ]
    limit = stats.t.isf(1e-4 / 2 / 5, len(draws) - 1) * np.std(draws, ddof=1) / 20
    assert abs(np.mean(draws) - exact) < limit


def test_nothing_is_the_projection_of_nothing():
    zero = torch.zeros(8, 8, dtype=torch.float64)
    assert not approximate(zero, "OFT", Budget(8, 8, 2), np.random.default_rng(0)).any()


@pytest.mark.parametrize("name", ["OFT", "HiRA", "LoRA-XS", "Super-Tuning", "LoRA"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(8, 6), r"weights must be of shape \(6, 8\), the shape of the budget, not"),
        ("W", "weights must be a torch tensor or a NumPy array, not str"),
        (torch.full((6, 8), float("nan")), "weights must be finite"),
    ],
    ids=["another shape", "no tensor", "not finite"],
)
def test_weights_that_do_not_fit_are_refused(name, weights, message):
    with pytest.raises(InvalidArgumentError, match=message):
        approximate(
            torch.ones(6, 8), name, Budget(6, 8, 2), np.random.default_rng(0), weights=weights
        )


def test_weights_of_a_method_of_ones_own_are_checked():
    method = type(METHODS["OFT"])("rotated", weights=torch.ones(8, 6))
    with pytest.raises(
        InvalidArgumentError, match="weights of rotated must be a finite 6x8 tensor"
    ):
        approximate(torch.ones(6, 8), method, Budget(6, 8, 2), np.random.default_rng(0))


def test_a_projection_that_does_not_converge_says_so(monkeypatch):
    monkeypatch.setattr(multiplicative, "_STEPS", 1)
    with pytest.warns(UserWarning, match="did not converge in 1 steps"):
        approximate(
            torch.from_numpy(gaussian(12, 8)), "OFT", Budget(12, 8, 2), np.random.default_rng(0)
        )

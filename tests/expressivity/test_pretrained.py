"""Methods that know the pretrained weights, against PEFT and the span of their atoms."""

import numpy as np
import pytest
import torch
from peft import LoraConfig, SupertuningConfig, TinyLoraConfig, get_peft_model
from scipy import stats
from torch import nn

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, approximate, retained_energies
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods.registry import find_methods

from .dense import gaussian, projected

P, Q = 9, 12
BUDGET = Budget(P, Q, 2)  # 42 numbers
WEIGHTS = gaussian(P, Q, 1)
SINGLE = 1e-5  # PEFT decomposes in single precision


def atoms_in_peft(config):
    """The change of a layer of PEFT by each of its trained numbers, as rows."""
    linear = nn.Linear(Q, P, bias=False)
    linear.weight.data = torch.from_numpy(WEIGHTS).float()
    config.target_modules = ["0"]
    model = get_peft_model(nn.Sequential(linear), config)
    (trained,) = (tensor for tensor in model.parameters() if tensor.requires_grad)
    trained.data.zero_()

    def weight(numbers):
        product = torch.func.functional_call(
            model, {_name_of(model, trained): numbers}, (torch.eye(Q),)
        )
        return product.T.flatten()

    jacobian = torch.func.jacrev(weight)(trained.detach())
    return jacobian.flatten(1).T.double().numpy()


def _name_of(model, trained):
    return next(name for name, tensor in model.named_parameters() if tensor is trained)


def singular_vectors(weights):
    u, _, vh = np.linalg.svd(weights, full_matrices=False)
    return u, vh


def test_mica_is_the_projection_on_pefts_factor():
    rank = METHODS["MiCA"].rank(BUDGET)
    # MiCA trains A only, and PEFT freezes B.
    atoms = atoms_in_peft(LoraConfig(r=rank, init_lora_weights="mica"))
    matrix = gaussian(P, Q)
    fit = approximate(matrix, "MiCA", BUDGET, np.random.default_rng(0), weights=WEIGHTS)
    np.testing.assert_allclose(fit, projected(matrix, atoms, SINGLE), atol=SINGLE)


def test_super_tuning_is_the_projection_on_pefts_entries():
    count = METHODS["Super-Tuning"].parameters(BUDGET)
    atoms = atoms_in_peft(SupertuningConfig(sparsity=1 - (count + 0.5) / (P * Q)))
    matrix = gaussian(P, Q)
    fit = approximate(matrix, "Super-Tuning", BUDGET, weights=WEIGHTS)
    np.testing.assert_allclose(fit, projected(matrix, atoms, SINGLE), atol=SINGLE)
    (mean,) = mean_retained_energies(
        matrix, [METHODS["Super-Tuning"]], [BUDGET], weights=WEIGHTS
    ).values()
    assert mean == pytest.approx(float(fit.square().sum()))


def test_lora_xs_is_the_projection_on_leading_singular_vectors():
    u, vh = singular_vectors(WEIGHTS)
    s, matrix = METHODS["LoRA-XS"].side(BUDGET), gaussian(P, Q)
    atoms = np.array([np.outer(u[:, i], vh[j]).ravel() for i in range(s) for j in range(s)])
    fit = approximate(matrix, "LoRA-XS", BUDGET, np.random.default_rng(0), weights=WEIGHTS)
    np.testing.assert_allclose(fit, projected(matrix, atoms), atol=1e-11)


def test_tinylora_is_a_projection_on_random_cores_as_pefts():
    """The mean energy over the cores, ours and PEFT's; wrong for one seed in 10⁴."""
    # Of 49 cores 42 are used. A matrix which is large where the singular values are.
    matrix, count = WEIGHTS @ WEIGHTS.T @ WEIGHTS, METHODS["TinyLoRA"].parameters(BUDGET)
    ours = [
        retained_energies(
            matrix, "TinyLoRA", [BUDGET], np.random.default_rng([1, seed]), weights=WEIGHTS
        )[0]
        for seed in range(200)
    ]
    side = METHODS["TinyLoRA"].side(BUDGET)
    configs = [TinyLoraConfig(r=side, u=count, projection_seed=seed) for seed in range(100)]
    pefts = [np.sum(projected(matrix, atoms_in_peft(config), SINGLE) ** 2) for config in configs]
    assert stats.ttest_ind(ours, pefts, equal_var=False).pvalue > 1e-4
    # Without the scaling by singular values the mean differs by more than its error.
    u, vh = singular_vectors(WEIGHTS)
    unscaled = count / side**2 * np.sum((u[:, :side].T @ matrix @ vh[:side].T) ** 2)
    assert abs(np.mean(ours) - unscaled) > 5 * stats.sem(ours)


@pytest.mark.parametrize("name", ["HiRA", "GLoRA"])
def test_a_change_of_the_methods_own_form_is_retained_with_the_weights_only(name):
    rng = np.random.default_rng(0)
    rank = 1 if name == "GLoRA" else BUDGET.r
    change = WEIGHTS * (rng.standard_normal((P, rank)) @ rng.standard_normal((rank, Q)))

    def error(weights):
        fit = approximate(change, name, BUDGET, np.random.default_rng(3), weights=weights)
        return np.sum((change - fit.numpy()) ** 2) / np.sum(change**2)

    assert error(WEIGHTS) < 1e-3 < 0.1 < error(None)


DEFICIENT = ["OFT", "BOFT", "RoAd", "PSOFT", "LoRA-XS", "TinyLoRA"]


@pytest.mark.parametrize("name", DEFICIENT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_low_rank_reach_no_more_than_their_rank(name, dtype):
    """In float32 too, where rounding gives them the full rank."""
    rng, budget, rank = np.random.default_rng(0), Budget(16, 16, 5), 4
    weights = rng.standard_normal((16, rank)) @ rng.standard_normal((rank, 16))
    matrix = torch.from_numpy(gaussian(16, 16)).to(dtype)
    known = torch.from_numpy(weights).to(dtype)
    fit = approximate(matrix, name, budget, np.random.default_rng(0), weights=known)
    if name in ("LoRA-XS", "TinyLoRA"):
        u, vh = singular_vectors(weights)
        u, vh = u[:, :rank], vh[:rank]
        expected = u @ u.T @ matrix.numpy() @ vh.T @ vh
    else:
        tangent, count = METHODS[name].tangent(torch.from_numpy(weights), budget, rng)
        atoms = torch.func.jacrev(tangent)(torch.zeros(count, dtype=torch.float64))
        expected = projected(matrix.numpy().astype(float), atoms.flatten(0, 1).T.numpy(), 1e-9)
    np.testing.assert_allclose(fit, expected, atol=1e-3 if dtype == torch.float32 else 1e-7)


@pytest.mark.parametrize("name", [*DEFICIENT, "HRA", "HiRA"])
def test_weights_of_zeros_reach_nothing(name):
    zeros, rng = np.zeros((16, 16)), np.random.default_rng(0)
    fit = approximate(gaussian(16, 16), name, Budget(16, 16, 4), rng, weights=zeros)
    assert not fit.any()


def test_an_odd_number_of_outputs_is_refused_by_roads_pairs():
    with pytest.raises(InvalidArgumentError, match="RoAd pairs the outputs, but p = 9 is odd"):
        approximate(gaussian(9, 8), "RoAd", Budget(9, 8, 2), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["LoRA-XS", "MiCA", "OFT", "BOFT", "RoAd", "PSOFT"])
def test_known_weights_leave_nothing_to_draw(name):
    matrix, budget = gaussian(32, 32), Budget(32, 32, 4)
    known = np.random.default_rng(5).standard_normal((32, 32))
    fits = [
        approximate(matrix, name, budget, rng, weights=known).numpy()
        for rng in (None, np.random.default_rng(0), np.random.default_rng(1))
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])
    (energy,) = retained_energies(matrix, name, [budget], weights=known)
    assert energy > 0
    with pytest.raises(InvalidArgumentError, match="makes random choices: pass rng="):
        approximate(matrix, name, budget)


@pytest.mark.parametrize("name", ["TinyLoRA", "HRA", "HiRA", "GLoRA"])
def test_what_is_random_beside_the_weights_needs_a_generator(name):
    matrix = gaussian(32, 32)
    with pytest.raises(InvalidArgumentError, match="makes random choices: pass rng="):
        approximate(matrix, name, Budget(32, 32, 4), weights=matrix)


def test_methods_without_the_weights_ignore_them():
    matrix, methods = gaussian(P, Q), find_methods(["LoRA", "LoCA", "SHiRA", "LoRA-FA"])
    of_known, of_unknown = (
        mean_retained_energies(matrix, methods, [BUDGET], np.random.default_rng(0), weights=weights)
        for weights in (WEIGHTS, None)
    )
    assert of_known == of_unknown

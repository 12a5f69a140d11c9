"""Published adapters against PEFT's own: the map of their parameters, and how many they train."""

import math

import numpy as np
import pytest
import torch
from peft import (
    C3AConfig,
    FourierFTConfig,
    GloraConfig,
    GraloraConfig,
    HiraConfig,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    MissConfig,
    RandLoraConfig,
    ShiraConfig,
    SupertuningConfig,
    TinyLoraConfig,
    UniLoraConfig,
    VBLoRAConfig,
    VeraConfig,
    WaveFTConfig,
    get_peft_model,
)
from peft.tuners.lora import BdLoraConfig
from scipy import optimize
from torch import nn

from loca_theory.expressivity import METHODS, Budget
from loca_theory.expressivity.methods import fitted, gradient_fits
from loca_theory.expressivity.random_choices import random_indices

from .dense import approximated, gaussian, projected

# PEFT computes in single precision: some hundred operations on numbers of order one.
ROUNDING, SINGLE = 1e-4, 1e-5


def adapted(config, p, q):
    """A p×q layer with an adapter of PEFT, and the model around it."""
    config.target_modules = ["0"]
    model = get_peft_model(nn.Sequential(nn.Linear(q, p, bias=False)), config)
    return model.base_model.model[0], model


def change(layer, p, q):
    """ΔW of a layer, as PEFT merges it."""
    if hasattr(layer, "miss_block"):
        return layer.get_delta_weight_miss("default", torch.zeros(p, q)).detach()
    return layer.get_delta_weight("default").detach().to_dense()


def images(layer, p, q):
    """ΔW of every unit vector of the trained parameters, as rows, in double precision."""
    trained = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.data.zero_()
    changes = []
    for parameter in trained:
        for i in range(parameter.numel()):
            parameter.data.view(-1)[i] = 1.0
            changes.append(change(layer, p, q).flatten().double().numpy().copy())
            parameter.data.view(-1)[i] = 0.0
    return np.array(changes)


IMAGES = [("C3A", 12, 8, 2), ("C3A", 8, 16, 1), ("C3A", 8, 8, 3)]
IMAGES += [("MiSS", 12, 8, 2), ("MiSS", 8, 12, 2), ("MiSS", 7, 9, 1)]


@pytest.mark.parametrize(("name", "p", "q", "r"), IMAGES)
def test_a_linear_family_projects_on_the_image_of_pefts(name, p, q, r):
    budget, method = Budget(p, q, r), METHODS[name]
    is_miss = name == "MiSS"
    config = (
        MissConfig(r=method.period(budget))
        if is_miss
        else C3AConfig(block_size=method.block(budget))
    )
    layer, model = adapted(config, p, q)
    assert model.get_nb_trainable_parameters()[0] == method.parameters(budget)
    atoms = images(layer, p, q)
    assert np.linalg.matrix_rank(atoms, tol=1e-4) == method.parameters(budget)
    matrix = gaussian(p, q)
    expected = projected(matrix, atoms, SINGLE)
    np.testing.assert_allclose(approximated(matrix, name, budget), expected, atol=ROUNDING)


@pytest.mark.parametrize(
    ("method", "configured"), [("WaveFT-PEFT", WaveFTConfig), ("FourierFT", FourierFTConfig)]
)
@pytest.mark.parametrize(("p", "q", "r"), [(6, 8, 2), (7, 9, 2), (5, 6, 1), (8, 7, 1)], ids=str)
def test_random_atoms_are_pefts_at_the_drawn_indices(method, configured, p, q, r):
    """All atoms of PEFT, in the order of its indices, of which our draw selects some."""
    budget, n = Budget(p, q, r), p * q
    layer, _ = adapted(configured(n_frequency=n, scaling=float(n)), p, q)
    indices = (layer.waveft_indices if method == "WaveFT-PEFT" else layer.indices)["default"]
    atoms = np.empty((n, n))
    atoms[(indices[0] * q + indices[1]).numpy()] = images(layer, p, q) / n**0.5
    drawn = random_indices(n, budget.random_coefficients, np.random.default_rng(7))
    matrix = gaussian(p, q)
    expected = projected(matrix, atoms[drawn], SINGLE)
    np.testing.assert_allclose(approximated(matrix, method, budget), expected, atol=10 * ROUNDING)


@pytest.mark.parametrize(("p", "q"), [(7, 9), (6, 7), (9, 4)], ids=str)
def test_wavefts_rank_as_shipped_is_the_expected_one(p, q):
    """Mean rank over PEFT's own random locations, against 1 − error; 4.5 standard errors."""
    budget, draws = Budget(p, q, 1), 200
    n = p * q
    layer, _ = adapted(WaveFTConfig(n_frequency=n, scaling=1.0), p, q)
    indices = layer.waveft_indices["default"]
    atoms = np.empty((n, n))
    atoms[(indices[0] * q + indices[1]).numpy()] = images(layer, p, q)
    ranks = []
    for seed in range(draws):
        drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        ranks.append(np.linalg.matrix_rank(atoms[drawn[: p + q].numpy()], tol=1e-4))
    expected = n * (1 - METHODS["WaveFT-PEFT"].expected_errors([budget])[0])
    assert min(ranks) < p + q
    assert abs(np.mean(ranks) - expected) < 4.5 * np.std(ranks, ddof=1) / math.sqrt(draws)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_shira_trains_as_many_entries():
    p, q, r = 6, 9, 2
    layer, model = adapted(ShiraConfig(r=r, random_seed=3), p, q)
    assert model.get_nb_trainable_parameters()[0] == METHODS["SHiRA"].parameters(Budget(p, q, r))
    atoms = images(layer, p, q)
    np.testing.assert_array_equal(atoms @ atoms.T, np.eye(len(atoms)))
    assert ((atoms == 0) | (atoms == 1)).all()


@pytest.mark.parametrize(
    ("name", "config", "budget"),
    [
        ("GraLoRA", GraloraConfig(r=4, gralora_k=2, init_weights=False), Budget(8, 12, 4)),
        ("LoKr", LoKrConfig(r=100, decompose_factor=2, init_weights=False), Budget(12, 12, 2)),
    ],
)
def test_what_pefts_makes_is_found(name, config, budget):
    layer, model = adapted(config, budget.p, budget.q)
    assert model.get_nb_trainable_parameters()[0] == METHODS[name].parameters(budget)
    matrix = change(layer, budget.p, budget.q).double().numpy()
    assert np.linalg.matrix_rank(matrix, tol=1e-5) > budget.r
    np.testing.assert_allclose(approximated(matrix, name, budget), matrix, atol=ROUNDING)


# PEFT's DoRA has a magnitude for each row, and the paper's for each column: as many in a square.
P, Q, R = 12, 12, 4


def blocks_in_b(rank):
    """BD-LoRA with two blocks of a rank in B."""
    config = BdLoraConfig(target_modules_bd_b=["0"], nblocks=2)
    return LoraConfig(r=2 * rank, lora_alpha=2 * rank, use_bdlora=config)


def bank(budget):
    vectors, length, _ = METHODS["VB-LoRA"].sizes(budget)
    return VBLoRAConfig(r=budget.r, num_vectors=vectors, vector_length=length, topk=2)


COUNTED = {
    "LoRA": lambda budget: LoraConfig(r=R),
    "DoRA": lambda budget: LoraConfig(r=R, use_dora=True),
    "FourierFT": lambda budget: FourierFTConfig(
        n_frequency=METHODS["random DCT"].parameters(budget)
    ),
    "WaveFT": lambda budget: WaveFTConfig(n_frequency=METHODS["random DCT"].parameters(budget)),
    "VeRA": lambda budget: VeraConfig(r=METHODS["VeRA"].rank(budget)),
    "LoHa": lambda budget: LoHaConfig(r=METHODS["LoHa"].rank(budget)),
    "HiRA": lambda budget: HiraConfig(r=R),
    "RandLoRA": lambda budget: RandLoraConfig(r=METHODS["RandLoRA"].rank(budget)),
    "GLoRA": lambda budget: GloraConfig(r=METHODS["GLoRA"].rank(budget)),
    "Super-Tuning": lambda budget: SupertuningConfig(
        sparsity=1 - (METHODS["Super-Tuning"].parameters(budget) + 0.5) / (P * Q)
    ),
    "TinyLoRA": lambda budget: TinyLoraConfig(
        r=METHODS["TinyLoRA"].side(budget), u=METHODS["TinyLoRA"].parameters(budget)
    ),
    "BD-LoRA": lambda budget: blocks_in_b(METHODS["BD-LoRA"].inner(budget).r),
    "Uni-LoRA": lambda budget: UniLoraConfig(
        r=METHODS["Uni-LoRA"].rank(budget), theta_d_length=METHODS["Uni-LoRA"].parameters(budget)
    ),
    "VB-LoRA": lambda budget: bank(budget),
    "MiCA": lambda budget: LoraConfig(r=METHODS["MiCA"].rank(budget), init_lora_weights="mica"),
}


@pytest.mark.parametrize("method", COUNTED)
def test_trained_numbers_are_counted_as_in_peft(method):
    budget = Budget(P, Q, R)
    _, model = adapted(COUNTED[method](budget), P, Q)
    assert model.get_nb_trainable_parameters()[0] == METHODS[method].parameters(budget)


def test_tinyloras_numbers_are_independent_in_peft():
    """For one matrix; at the default inner rank of 2 its 64 numbers reach four dimensions."""
    budget, method = Budget(10, 12, 2), METHODS["TinyLoRA"]
    layer, _ = adapted(TinyLoraConfig(r=method.side(budget), u=44), 10, 12)
    assert np.linalg.matrix_rank(images(layer, 10, 12), tol=1e-4) == method.parameters(budget) == 44
    layer, _ = adapted(TinyLoraConfig(), 10, 12)
    assert np.linalg.matrix_rank(images(layer, 10, 12), tol=1e-4) == 2**2


def test_super_tuning_trains_the_entries_of_the_largest_weights():
    layer, _ = adapted(SupertuningConfig(sparsity=0.7), 6, 10)
    atoms = images(layer, 6, 10)
    weights = layer.get_base_layer().weight.detach().abs().flatten()
    assert set(atoms.argmax(axis=1)) == set(weights.topk(18).indices.tolist())
    np.testing.assert_array_equal(atoms @ atoms.T, np.eye(18))


def test_bd_loras_change_in_peft_is_found():
    p, q, budget = 12, 8, Budget(12, 8, 4)
    layer, _ = adapted(blocks_in_b(METHODS["BD-LoRA"].inner(budget).r), p, q)
    torch.manual_seed(0)
    layer.lora_B["default"].weight.data.normal_()
    before = layer.get_base_layer().weight.detach()
    matrix = (layer(torch.eye(q)).T - before).detach().double().numpy()
    assert np.linalg.matrix_rank(matrix, tol=1e-5) > budget.r - 1
    np.testing.assert_allclose(approximated(matrix, "BD-LoRA", budget), matrix, atol=ROUNDING)


def form_of(name, budget, monkeypatch):
    """The form that a method fits, its start, and the random numbers that it begins from."""
    captured = []

    def keep(matrix, form, start):
        captured.append((form, start))
        return iter(())

    monkeypatch.setattr(gradient_fits, "descend", keep)
    ones = torch.ones(budget.p, budget.q, dtype=torch.float64)
    METHODS[name].rounds_of(ones, budget, np.random.default_rng(3))
    return *captured[0], np.random.default_rng(3)


def test_uni_lora_fits_the_form_of_peft(monkeypatch):
    p, q, budget = 6, 8, Budget(6, 8, 2)
    form, (numbers,), rng = form_of("Uni-LoRA", budget, monkeypatch)
    count, rank = METHODS["Uni-LoRA"].parameters(budget), METHODS["Uni-LoRA"].rank(budget)
    layer, _ = adapted(UniLoraConfig(r=rank, theta_d_length=count), p, q)
    occurring = np.resize(rng.permutation(count), (p + q) * rank)
    assert set(np.bincount(occurring)) == {2}
    indices = torch.from_numpy(rng.permutation(occurring)).reshape(rank, p + q)
    layer.unilora_indices_B["default"] = indices[:, :p].T
    layer.unilora_indices_A["default"] = indices[:, p:]
    layer.unilora_theta_d["default"].data = numbers.float()
    torch.testing.assert_close(change(layer, p, q), form(numbers).float(), rtol=0, atol=ROUNDING)


def test_vb_lora_fits_the_form_of_peft(monkeypatch):
    p, q, budget = 8, 12, Budget(8, 12, 3)
    form, (vectors, weights), rng = form_of("VB-LoRA", budget, monkeypatch)
    count, length, mixtures = METHODS["VB-LoRA"].sizes(budget)
    layer, _ = adapted(bank(budget), p, q)
    first = rng.integers(count, size=mixtures)
    second = (first + rng.integers(1, count, size=mixtures)) % count
    assert (first != second).all()
    weights = torch.from_numpy(rng.standard_normal(mixtures))
    logits = torch.full((mixtures, count), -50.0)
    logits[np.arange(mixtures), first] = weights.float()
    logits[np.arange(mixtures), second] = 0.0
    logits = logits.reshape(budget.r, -1, count)
    layer.vblora_logits_B["default"].data = logits[:, : p // length].transpose(0, 1)
    layer.vblora_logits_A["default"].data = logits[:, p // length :]
    layer.vblora_vector_bank["default"].data = vectors.float()
    expected = form(vectors, weights).float()
    torch.testing.assert_close(change(layer, p, q), expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", ["Uni-LoRA", "VB-LoRA"])
def test_a_fit_ends_where_a_naive_search_gains_nothing(name, monkeypatch):
    monkeypatch.setattr(fitted, "_TOLERANCE", 1e-12)
    budget, starts, descend = Budget(6, 6, 2), [], gradient_fits.descend

    def keep(matrix, form, start):
        starts.append((form, start))
        return descend(matrix, form, start)

    monkeypatch.setattr(gradient_fits, "descend", keep)
    matrix = gaussian(6, 6)
    error = np.sum((matrix - approximated(matrix, name, budget)) ** 2)
    form, ended = starts[0]
    sizes = [tensor.numel() for tensor in ended]

    def naive(values):
        parts = torch.from_numpy(values).split(sizes)
        shaped = [part.view_as(parameter) for part, parameter in zip(parts, ended, strict=True)]
        return float((form(*shaped) - torch.from_numpy(matrix)).square().sum())

    final = np.concatenate([tensor.detach().numpy().ravel() for tensor in ended])
    assert naive(final) == pytest.approx(error, rel=1e-6)
    assert optimize.minimize(naive, final).fun == pytest.approx(error, rel=1e-5)

"""Published adapters against PEFT's own: the map of their parameters, and how many they train."""

import math

import numpy as np
import pytest
import torch
from peft import (
    C3AConfig,
    FourierFTConfig,
    GraloraConfig,
    HiraConfig,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    MissConfig,
    RandLoraConfig,
    ShiraConfig,
    VeraConfig,
    WaveFTConfig,
    get_peft_model,
)
from torch import nn

from loca_theory.expressivity import METHODS, Budget
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
    trained = [one for one in layer.parameters() if one.requires_grad]
    for one in trained:
        one.data.zero_()
    found = []
    for one in trained:
        for i in range(one.numel()):
            one.data.view(-1)[i] = 1.0
            found.append(change(layer, p, q).flatten().double().numpy().copy())
            one.data.view(-1)[i] = 0.0
    return np.array(found)


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
    "MiCA": lambda budget: LoraConfig(r=METHODS["MiCA"].rank(budget), init_lora_weights="mica"),
}


@pytest.mark.parametrize("method", COUNTED)
def test_trained_numbers_are_counted_as_in_peft(method):
    budget = Budget(P, Q, R)
    _, model = adapted(COUNTED[method](budget), P, Q)
    assert model.get_nb_trainable_parameters()[0] == METHODS[method].parameters(budget)

"""Approximations of a matrix on the device that it lies on, at the precision of its type."""

import numpy as np
import pytest
import torch

from loca_theory.expressivity import METHODS, Budget, approximate, retained_energies
from loca_theory.expressivity.matrices import dense_errors, mean_retained_energies
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import find_methods

APPROXIMATING = [
    m.name for m in METHODS.values() if Engine.MONTE_CARLO in m.engines(Budget(8, 8, 2))
]
SELECTING = [m.name for m in METHODS.values() if isinstance(m, CoordinateMethod)]
by_method = pytest.mark.parametrize("method", APPROXIMATING)
BUDGETS = [Budget(16, 12, r) for r in (2, 4)]

# Some hundred float64 operations on numbers of order one, and rounds of least squares.
FITTED = "VeRA", "LoHa", "HiRA", "GLoRA", "Uni-LoRA", "VB-LoRA", "RandLoRA"
ROUNDING = dict.fromkeys(FITTED, 1e-6)


def matrix():
    return torch.randn(16, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def generator():
    return np.random.default_rng(7)


@by_method
def test_an_approximation_on_the_device_is_that_of_the_cpu(method, accelerator):
    w, tolerance = matrix(), ROUNDING.get(method, 1e-11)
    expected = approximate(w, method, BUDGETS[1], generator())
    approximation = approximate(w.to(accelerator), method, BUDGETS[1], generator())
    assert approximation.device.type == accelerator.type
    assert float((approximation.cpu() - expected).norm()) <= tolerance * float(w.norm())
    retained = retained_energies(w.to(accelerator), method, BUDGETS, generator())
    energy = float(w.square().sum())
    assert retained == pytest.approx(
        retained_energies(w, method, BUDGETS, generator()), abs=tolerance * energy
    )


def test_expected_energies_on_the_device_are_those_of_the_cpu(accelerator):
    w = matrix()
    expected = mean_retained_energies(w, find_methods(SELECTING), BUDGETS)
    energies = mean_retained_energies(w.to(accelerator), find_methods(SELECTING), BUDGETS)
    for method in SELECTING:
        assert energies[method] == pytest.approx(expected[method], rel=1e-11)


@by_method
def test_a_dense_draw_on_the_device_is_that_of_the_cpu(method, accelerator):
    on_cpu, on_device = (
        dense_errors(METHODS[method], BUDGETS, generator(), generator(), str(device))
        for device in ("cpu", accelerator)
    )
    assert on_device == pytest.approx(on_cpu, abs=ROUNDING.get(method, 1e-11))


@by_method
def test_autocast_and_tf32_do_not_thin_the_result_out(method, device):
    w = matrix().float().to(device)
    expected = approximate(w, method, BUDGETS[1], generator())
    with torch.autocast(device.type, dtype=torch.bfloat16):
        approximation = approximate(w, method, BUDGETS[1], generator())
        retained = retained_energies(w, method, BUDGETS, generator())
    assert torch.equal(approximation, expected)
    assert (retained == retained_energies(w, method, BUDGETS, generator())).all()

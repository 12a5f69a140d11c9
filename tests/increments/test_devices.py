"""Spectra and histograms of a matrix on its own device, at the precision of its type."""

import numpy as np
import pytest
import torch

from loca_theory.increments import eigenvalues
from loca_theory.increments.eigenvalues import squared_singular_values
from loca_theory.increments.histogram import histogram
from loca_theory.increments.truncated_svd import truncated_svd


def normal(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def leading(matrix):
    return truncated_svd(matrix, 3).s.cpu().numpy()


# Of 30 columns the Gram matrix is decomposed; of 530, the truncated SVD has a Krylov space.
@pytest.mark.parametrize("size", [30, 530])
@pytest.mark.parametrize("function", [squared_singular_values, leading])
def test_a_spectrum_on_the_device_is_that_of_the_cpu(function, size, accelerator):
    w = normal(40, 30) if size == 30 else normal(540, 530)
    expected = function(w)
    # A Gram matrix in float64 and its eigenvalues: some hundred roundings of the largest.
    np.testing.assert_allclose(function(w.to(accelerator)), expected, atol=1e-12 * expected.max())


@pytest.mark.parametrize("scale", [1.0, 1e-200])
def test_a_histogram_on_the_device_is_that_of_the_cpu(scale, accelerator):
    w = normal(50, 40) * scale
    on_cpu, on_device = histogram(w), histogram(w.to(accelerator))
    assert (on_device.counts == on_cpu.counts).all()
    # Sums of 2000 terms in float64, in any order.
    assert on_device.mean == pytest.approx(on_cpu.mean, abs=1e-12 * on_cpu.standard_deviation)
    assert on_device.standard_deviation == pytest.approx(on_cpu.standard_deviation, rel=1e-12)
    assert on_device.excess_kurtosis == pytest.approx(on_cpu.excess_kurtosis, abs=1e-10)
    assert on_device.zeros == on_cpu.zeros


@pytest.mark.parametrize("double", [True, False], ids=["in double", "in single"])
@pytest.mark.parametrize("function", [squared_singular_values, leading])
def test_autocast_does_not_thin_the_spectrum_out(function, double, monkeypatch, device):
    if not double:
        monkeypatch.setattr(eigenvalues, "DOUBLE_UP_TO", 1)
    w = normal(540, 530, dtype=torch.float32).to(device)
    expected = function(w)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        spectrum = function(w)
    assert (spectrum == expected).all()

"""The law against quadrature of its density, its moments and real spectra."""

import numpy as np
import pytest
from scipy import integrate

from loca_theory.increments import MarchenkoPastur

LAWS = [
    MarchenkoPastur(1.0),
    MarchenkoPastur(0.3, 2.0),
    MarchenkoPastur(4.0, 0.5),
    MarchenkoPastur(1e-3),
    MarchenkoPastur(0.999),
]
each_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.ratio:g}, {law.sigma:g}")


def by_quadrature(law, f, low, high):
    """∫ f(x) pdf(x) dx with x = centre + radius cos θ, which takes the edges' roots away."""
    a, b = law.support
    centre, radius = (a + b) / 2, (b - a) / 2
    angles = [np.arccos(np.clip((x - centre) / radius, -1, 1)) for x in (high, low)]

    def integrand(theta):
        x = centre + radius * np.cos(theta)
        return f(x) * float(law.pdf(x)) * radius * np.sin(theta)

    return integrate.quad(integrand, *angles, epsabs=1e-13, epsrel=1e-12, limit=400)[0]


@each_law
def test_mass_and_moments(law):
    a, b = law.support
    assert by_quadrature(law, lambda x: 1.0, a, b) == pytest.approx(1 - law.atom, abs=1e-7)
    assert by_quadrature(law, lambda x: x, a, b) == pytest.approx(law.mean, rel=1e-9)
    second = by_quadrature(law, lambda x: x * x, a, b)
    assert second - law.mean**2 == pytest.approx(law.variance, rel=1e-8)


@each_law
@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.9])
def test_cdf_and_energy_fraction_above_are_integrals_of_the_density(law, place):
    a, b = law.support
    x = a + place * (b - a)
    beyond = by_quadrature(law, lambda x: 1.0, x, b)
    assert float(law.sf(x)) == pytest.approx(beyond, abs=1e-10)
    assert float(law.cdf(x)) == pytest.approx(1 - beyond, abs=1e-10)
    mass = by_quadrature(law, lambda x: x, x, b) / law.mean
    assert float(law.energy_fraction_above(x)) == pytest.approx(mass, abs=1e-10)


@each_law
def test_quantiles_invert_the_distribution_and_nothing_lies_beyond(law):
    probability = np.linspace(0.001, 0.999, 41)
    x = law.isf(probability)
    above_atom = probability < 1 - law.atom
    np.testing.assert_allclose(law.sf(x[above_atom]), probability[above_atom], atol=1e-12)
    assert np.all(x[~above_atom] == 0)
    np.testing.assert_allclose(law.ppf(1 - probability), x, rtol=1e-9, atol=1e-13)
    a, b = law.support
    assert law.pdf([a - 1e-9, b + 1e-9, -1.0]).tolist() == [0, 0, 0]
    assert law.cdf([-1.0, b, b + 1]).tolist() == [0, 1, 1]
    assert float(law.cdf(0.0)) == pytest.approx(law.atom, abs=1e-12)

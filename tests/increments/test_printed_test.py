"""The paper's test against its definition, carried out step by step."""

import numpy as np
import pytest
import torch
from scipy import special, stats

from loca_theory.increments import PrintedTest, printed_test
from loca_theory.increments.histogram import histogram
from loca_theory.increments.printed_test import AcceptanceError, Tail, bin_counts, copies_of


def rng(seed=0):
    return np.random.default_rng(seed)


def counted(x):
    return histogram(torch.from_numpy(np.asarray(x)))


def printed(x, **settings):
    return PrintedTest(**settings).p_value(counted(x), rng(1))


def test_printed_rejects_large_normal_matrices():
    """Its null leaves the reference sample's own error out: at 768² normal entries are rejected."""
    assert printed(rng().standard_normal(768**2), copies=20) <= 0.05
    assert printed(rng().standard_normal(60**2), copies=20) > 0.05


def test_the_literal_percentile_rejects_nothing():
    x = rng().standard_t(5, 768**2)
    assert printed(x, copies=20, tail=Tail.PERCENTILE) == 1.0
    assert printed(x, copies=20) == 0.0


def test_the_loop_ends_and_says_what_to_change():
    with pytest.raises(AcceptanceError, match=r"accepted 0 of 5 perturbed copies.*raise epsilon"):
        printed(1e-5 * rng().standard_normal(5000))
    # Where it depends on the bins, which are not printed, the finest that end are taken.
    x = 2e-3 * rng().standard_normal(5000)
    with pytest.raises(AcceptanceError, match="raise epsilon"):
        printed(x, bins_per_sigma=8)
    assert 0 <= printed(x) <= 1


def test_a_loop_that_keeps_too_few_ends_as_well(monkeypatch):
    monkeypatch.setattr(printed_test, "_ATTEMPTS", 1)
    x = 5e-4 * rng().standard_normal(5000)
    with pytest.raises(AcceptanceError, match="raise epsilon"):
        printed(x, epsilon=0.00205, bins_per_sigma=8)


# Noise of 1/12 of a bin is the largest at which crossings are drawn.
WIDTHS = {"narrow noise": (8, 1e-3), "as wide as allowed": (4, 1 / 48), "wide noise": (4, 0.05)}


@pytest.mark.parametrize(("steps", "noise"), WIDTHS.values(), ids=WIDTHS.keys())
def test_copies_have_the_moments_of_their_definition(steps, noise):
    """Mean and covariance of the counts follow from each sample's probability of each bin."""
    sample, runs = np.sort(rng().standard_normal(3000)), 4000
    copies = copies_of(sample, steps, noise)(runs, rng(1))
    assert (copies.sum(axis=1) == len(sample)).all()
    edges = np.arange(-8 * steps, 8 * steps + 1) / steps
    below = special.ndtr((edges - sample[:, None]) / noise)
    cells = np.diff(below, axis=1, prepend=0, append=1)
    covariance = np.diag(cells.sum(axis=0)) - cells.T @ cells
    variance = np.diag(covariance)
    moving = variance > 1 / runs
    assert moving.sum() > 4 * steps
    assert (copies[:, variance < 1e-15] == bin_counts(sample, steps)[variance < 1e-15]).all()
    apart = (copies - cells.sum(axis=0))[:, moving]
    # 5 standard errors for some hundred means, and 6 for their thousands of products. Counts that
    # are mostly 0 have a kurtosis of 1/variance.
    assert (np.abs(apart.mean(axis=0)) < 5 * np.sqrt(variance[moving] / runs)).all()
    product = apart.T @ apart / runs
    error = np.outer(variance[moving], variance[moving])
    error = np.sqrt(2 * error + np.sqrt(error) + np.abs(covariance[np.ix_(moving, moving)])) / 60
    assert (np.abs(product - covariance[np.ix_(moving, moving)]) < 6 * error).all()


def test_a_reference_can_be_shared():
    x, test = counted(rng().standard_normal(900)), PrintedTest(copies=10, samples=5000)
    source = rng(1)
    assert test.p_value(x, source, test.reference(source)) == test.p_value(x, rng(1))


def test_few_samples_are_given_all_attempts(monkeypatch):
    """With 100 samples, a copy in which only one of them crosses is farther than 2 epsilon."""
    x, noise = counted(rng().standard_normal(500)), 0.001
    near = [0.5, -0.25] - stats.norm.ppf(0.6) * noise / x.standard_deviation
    middles = (np.arange(98) % 16 - 7.5) / 8
    monkeypatch.setattr(printed_test, "_ATTEMPTS", 60)
    test = PrintedTest(samples=100, copies=60, noise=noise, bins_per_sigma=8)
    # Each of the two near an edge crosses it with probability 0.4. Five copies in a row with a
    # crossing begin one run in nine; thirty would begin one in 700,000.
    sample = np.sort([*near, *middles])
    assert all(0 <= test.p_value(x, rng(seed), sample) <= 1 for seed in range(40))

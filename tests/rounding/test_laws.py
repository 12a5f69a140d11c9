"""Laws of rounded normal changes: against all pairs of numbers, and against draws."""

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from loca_theory.errors import InvalidArgumentError
from loca_theory.rounding import FORMATS, rounded_change, rounded_singular_value, visible_from
from loca_theory.sweeps import generator


def density(x):
    return np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi)


def over_all_pairs(form, change, weight):
    """The moments as sums over all numbers before and after of a format of eight bits."""
    numbers = torch.arange(256).to(torch.uint8).view(form.dtype).double().numpy()
    numbers = np.unique(numbers[np.isfinite(numbers)])
    # The last cells end so far away that no normal variable gets there.
    far = 2 * numbers[-1]
    edges = np.concatenate([[-far], (numbers[1:] + numbers[:-1]) / 2, [far]])
    probabilities = np.diff(ndtr(edges / weight))
    x = (edges - numbers[:, None]) / change
    d = (numbers - numbers[:, None]) / change
    mass, of_density, moment = (np.diff(part) for part in (ndtr(x), density(x), x * density(x)))
    inner = -d * of_density
    error = (1 + d**2) * mass - moment + 2 * d * of_density
    return [
        float(probabilities @ values)
        for values in (1 - np.diag(mass), inner.sum(axis=1), error.sum(axis=1))
    ]


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("ratio", [0.01, 0.1, 0.3, 1, 5])
@pytest.mark.parametrize("weight", [1.0, 0.05, 0.002])
def test_moments_are_sums_over_all_pairs_of_numbers(name, ratio, weight):
    """Normal and subnormal weights; the integrals over fine steps are off by 1e-4 at most."""
    law = rounded_change(FORMATS[name], ratio * weight, weight)
    expected = over_all_pairs(FORMATS[name], ratio * weight, weight)
    assert [law.changed, law.slope, law.error] == pytest.approx(expected, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "change", "weight"),
    [
        ("bfloat16", 1e-3, 1.0),
        ("bfloat16", 0.5, 1.0),
        ("float16", 3e-4, 1.0),
        ("float16", 3e-8, 3e-6),  # subnormal
        ("float32", 3e-8, 1.0),
    ],
)
def test_moments_are_those_of_draws(name, change, weight):
    form, source = FORMATS[name], generator(0, "rounded draws", name, round(1e9 * change))
    count = 400_000
    w = form.round(torch.from_numpy(weight * source.standard_normal(count)))
    increment = torch.from_numpy(change * source.standard_normal(count))
    d = form.round(w + increment) - w
    law = rounded_change(form, change, weight)
    for draws, expected in (
        ((d != 0).double(), law.changed),
        (d * increment / change**2, law.slope),
        ((d - increment).square() / change**2, law.error),
        (d.square() / change**2, law.energy),
    ):
        # Five standard errors, in 20 comparisons.
        assert abs(float(draws.mean()) - expected) < 5 * float(draws.std()) / count**0.5


def test_formats_of_more_bits_leave_more():
    laws = [rounded_change(FORMATS[name], 1e-3) for name in ("bfloat16", "float16", "float32")]
    assert [law.changed for law in laws] == sorted(law.changed for law in laws)
    assert [law.error for law in laws] == sorted((law.error for law in laws), reverse=True)


def singular_values(change, increment, source):
    """Those of a rounded change of bfloat16 weights of unit variance."""
    form = FORMATS["bfloat16"]
    w = form.round(torch.from_numpy(source.standard_normal(increment.shape)))
    d = form.round(w + torch.from_numpy(increment)) - w
    return torch.linalg.svdvals(d).numpy(), rounded_change(form, change)


@pytest.mark.parametrize(("change", "rank", "is_visible"), [(1e-3, 32, True), (3e-4, 200, False)])
def test_singular_values_of_low_rank_show_above_the_threshold(change, rank, is_visible):
    shape, source = (1024, 1024), generator(0, "rounded low rank", rank)
    u, v = (np.linalg.qr(source.standard_normal((side, rank)))[0] for side in shape)
    value = change * 1024 / rank**0.5
    values, law = singular_values(change, value * u @ v.T, source)
    assert (value > visible_from(law, change, shape)) == is_visible
    # A gap after the rank, or neighbours that differ as all others do.
    ratio = values[rank - 1] / values[rank]
    assert ratio > 2 if is_visible else ratio < 1.02


def test_singular_values_are_found_where_predicted():
    """Three of different size among independent entries, two of them above the threshold."""
    shape, change, source = (900, 700), 1e-3, generator(0, "rounded spikes")
    law = rounded_change(FORMATS["bfloat16"], change)
    threshold = visible_from(law, change, shape, independent=1.0)
    strengths = threshold * np.array([3.0, 1.8, 0.5])
    u, v = (np.linalg.qr(source.standard_normal((side, 3)))[0] for side in shape)
    increment = change * source.standard_normal(shape) + u * strengths @ v.T
    values, _ = singular_values(change, increment, source)
    expected = [
        rounded_singular_value(value, law, change, shape, independent=1.0) for value in strengths
    ]
    # A visible one fluctuates by at most √2 standard deviations of an entry of d.
    entry = change * law.energy**0.5
    assert np.abs(values[:2] - expected[:2]).max() < 4 * 2**0.5 * entry
    # The edge fluctuates by this much, times numbers of order 1 (C. Tracy and H. Widom).
    assert abs(values[2] - expected[2]) < 4 * entry * 700 ** (-1 / 6)


def test_what_is_not_a_standard_deviation_is_refused():
    form = FORMATS["float8_e4m3"]
    for change in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InvalidArgumentError, match="change must be a positive standard"):
            rounded_change(form, change)
    with pytest.raises(InvalidArgumentError, match="float8_e4m3 ends at 448"):
        rounded_change(form, 1.0, 100.0)
    law = rounded_change(FORMATS["bfloat16"], 1e-30)
    assert law.changed == 0
    assert visible_from(law, 1e-30, (8, 8)) == math.inf

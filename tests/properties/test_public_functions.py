"""Properties of analyze, extract, correlate and toy over random shapes, sizes and seeds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dctn

import loca_theory as loca
from loca_theory.sweeps import Runner

# These functions take a tenth of a second or more.
reproducible = settings(max_examples=10, deadline=None, derandomize=True, database=None)
ALONE = Runner(jobs=1)
# The increments of extract are differences of float32 weights of about 1, in float32.
FLOAT32 = 1e-4
seeds = st.integers(0, 2**32 - 1)
shapes = st.tuples(st.integers(16, 40), st.integers(16, 40))


def gaussian(seed, shape):
    return np.random.default_rng(seed).standard_normal(shape)


def tail(values, count):
    """Fraction of the energy of all but the ``count`` largest values."""
    squares = np.sort(np.square(values), axis=None)[::-1]
    return squares[count:].sum() / squares.sum()


@reproducible
@given(seed=seeds, shape=shapes, rank=st.integers(1, 4), exponent=st.integers(-20, 20))
def test_the_errors_of_an_analysis_are_those_of_the_definitions_at_every_scale(
    seed, shape, rank, exponent
):
    matrix = gaussian(seed, shape)
    analysis = loca.analyze(matrix * 2.0**exponent, ranks=[rank], runner=ALONE)
    errors = {row.method: row.error for row in analysis.errors}
    count = sum(shape) * rank // 2
    assert errors["LoRA"] == pytest.approx(tail(np.linalg.svd(matrix)[1], rank), abs=FLOAT32)
    assert errors["LoCA"] == pytest.approx(tail(dctn(matrix, norm="ortho"), count), abs=FLOAT32)
    assert errors["entries"] == pytest.approx(tail(matrix, count), abs=FLOAT32)
    assert all(0 <= error <= 1 for error in errors.values())


@reproducible
@given(seed=seeds, shape=shapes, size=st.integers(1, 12), method=st.sampled_from(["loca", "lora"]))
def test_an_extracted_adapter_has_the_error_of_the_best_of_its_form(seed, shape, size, method):
    base = {"layer.weight": torch.zeros(shape)}
    tuned = {"layer.weight": torch.from_numpy(gaussian(seed, shape)).float()}
    chosen = {"rank": size} if method == "lora" else {"components": size}
    extraction = loca.extract(base, tuned, method, **chosen, runner=ALONE)
    matrix = tuned["layer.weight"].double().numpy()
    values = np.linalg.svd(matrix)[1] if method == "lora" else dctn(matrix, norm="ortho")
    assert extraction.error == pytest.approx(tail(values, size), abs=FLOAT32)


@settings(reproducible, max_examples=4)
@given(
    seed=seeds,
    shape=st.tuples(st.integers(4, 8), st.integers(4, 8)),
    structure=st.sampled_from(["shared-mean", "equicorrelated", "ar1"]),
    rho=st.sampled_from([0.1, 0.3]),
)
def test_errors_under_dependence_do_not_depend_on_what_else_is_asked(seed, shape, structure, rho):
    def errors(values, structures):
        result = loca.correlate(
            shape=shape,
            ranks=[1],
            structures=structures,
            rho=values,
            seed=seed,
            draws=3,
            runner=ALONE,
        )
        return {
            (row.protocol, row.method): (row.error, row.standard_error)
            for row in result.rows
            if (row.structure, row.value) == (structure, rho)
        }

    alone = errors([rho], [structure])
    assert alone == errors([0.0, rho], sorted({structure, "ar1", "shared-mean"}))
    assert all(error > 0 and deviation >= 0 for error, deviation in alone.values())


@settings(reproducible, max_examples=5)
@given(
    seed=seeds,
    search=st.sampled_from(["central", "swap", "reselect"]),
    size=st.integers(3, 6),
    problems=st.integers(2, 4),
)
def test_a_search_of_the_toy_experiment_does_not_depend_on_the_others(seed, search, size, problems):
    def row(*searches):
        result = loca.toy(
            searches, sizes=size, problems=problems, steps=40, seed=seed, runner=ALONE
        )
        return next(row for row in result.rows if row.search == search)

    alone = row(search)
    assert alone == row("coefficients-only", search)
    assert 0 <= alone.low <= alone.recovered <= alone.high <= 1
    assert alone.recovered * problems == pytest.approx(round(alone.recovered * problems))
    assert 0 <= alone.mean_found <= 3

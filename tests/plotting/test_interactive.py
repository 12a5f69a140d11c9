"""The columns of an analysis's page and the data of its pictures."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.rows import Matrix
from loca_theory.expressivity.limits import coefficient_fraction
from loca_theory.expressivity.methods.names import display_name
from loca_theory.plotting.analysis_columns import (
    allocation_columns,
    comparison_columns,
    matrix_columns,
)
from loca_theory.plotting.interactive import picture_data
from loca_theory.plotting.templates import breakable

NOISE = np.random.default_rng(0).normal(size=(24, 20)).astype("float32")
WEIGHTS = {"a.0.q_proj.weight": NOISE, "a.1.v_proj.weight": 2 * NOISE[:, ::-1].copy()}


@pytest.fixture(scope="module")
def analysis():
    import torch

    tuned = {name: torch.from_numpy(matrix) for name, matrix in WEIGHTS.items()}
    return analyze({name: torch.zeros(24, 20) for name in tuned}, tuned, ranks=[1, 30])


@pytest.fixture(scope="module")
def full():
    """Two fine-tunes, their subspaces, and a total to split: every statistic and table."""
    import torch

    base = {name: torch.from_numpy(matrix[::-1].copy()) for name, matrix in WEIGHTS.items()}
    tuned = [
        {name: base[name] + size * torch.from_numpy(matrix) for name, matrix in WEIGHTS.items()}
        for size in (1, 3)
    ]
    return analyze(base, *tuned, ranks=[1], subspaces=2, allocate=200)


def test_a_statistic_that_no_matrix_has_is_not_a_column(analysis, full):
    optional = {"fine-tune", "‖ΔW‖/‖W₀‖", "left alignment", "intruders", "LoRA size", "LoCA size"}
    assert not optional & {column.title for column in matrix_columns(analysis)}
    assert optional <= {column.title for column in matrix_columns(full)}


def test_every_field_of_a_matrix_that_a_reader_needs_has_a_column(full):
    read = set()

    class Row:
        def __getattribute__(self, name):
            read.add(name)
            return getattr(full.matrices[0], name)

    for column in matrix_columns(full):
        column.value(Row())
    unread = set(Matrix.__dataclass_fields__) - read
    unshown = {"mean", "tv_low", "tv_high", "mp_wasserstein", "T", "note"}
    assert unread <= unshown | {"module", "is_convolution"}
    assert "rank_90" in read


def test_cells_have_the_numbers_of_the_errors(analysis):
    columns = {column.heading: column for column in matrix_columns(analysis)}
    assert not [title for title in columns if "r = 30" in title], "no budget of that rank fits"
    row = analysis.matrices[1]
    errors = {one.method: one for one in analysis.errors if one.name == row.name}
    assert columns["LoCA, r = 1"].value(row) == errors["D"].error
    assert columns["LoRA shuffled, r = 1"].value(row) == errors["R"].shuffled_error
    worth = errors["D"].spectral_error - errors["D"].error
    assert columns["LoCA worth, r = 1"].value(row) == worth
    assert columns["LoCA worth, r = 1"].text(row) == f"{worth:+.3f}"
    best = min(errors.values(), key=lambda one: one.error).method
    assert columns["best, r = 1"].text(row) == display_name(best)
    assert "LoRA worth, r = 1" not in columns
    assert "DCT, best coefficients" in columns["LoCA, r = 1"].explanation


def test_two_fine_tunes_of_one_name_are_told_apart(full):
    first, second = full.tuned
    columns = {column.heading: column for column in matrix_columns(full)}
    assert [row.tuned for row in full.matrices] == [first, first, second, second]
    for row in full.matrices:
        (error,) = [
            one.error
            for one in full.errors
            if (one.tuned, one.name, one.method) == (row.tuned, row.name, "D")
        ]
        assert columns["LoCA, r = 1"].value(row) == error
        (size,) = [
            one.size
            for one in full.allocation
            if (one.tuned, one.name, one.method) == (row.tuned, row.name, "R")
        ]
        assert columns["LoRA size"].text(row) == str(size)
    found = picture_data(full, list(columns.values()))
    assert [row["tuned"] for row in found["rows"]] == [row.tuned for row in full.matrices]
    assert all(found["spectra"])


def test_the_other_tables_have_columns(full):
    row = full.comparisons[0]
    found = {column.title: column.text(row) for column in comparison_columns(full.comparisons)}
    assert (found["first"], found["second"]) == full.tuned
    assert found["cosine"] == "+1.000", "one is three times the other"
    assert found["sign conflicts"] == "0.0%"
    row = full.allocation[0]
    found = {column.title: column.text(row) for column in allocation_columns(full.allocation)}
    assert found["retained"] == f"{row.retained:.1%}"
    assert found["size"] == str(row.size)


def test_the_map_has_every_matrix_at_its_budget_and_the_line_between_the_methods(analysis):
    found = picture_data(analysis, matrix_columns(analysis))
    assert found["ranks"] == [1]
    # A rank-1 budget of the paper's accounting: (24 + 20)·1 numbers, two of them per coefficient.
    assert found["coefficients"] == {"1": [pytest.approx(22 / 480, rel=1e-5)] * 2}
    (errors,) = [
        one["values"] for one in found["columns"] if (one["title"], one["r"]) == ("LoRA", 1)
    ]
    for matrix, error in zip(WEIGHTS.values(), errors, strict=True):
        singular = np.linalg.svd(matrix, compute_uv=False)
        assert 1 - error == pytest.approx(singular[0] ** 2 / (singular**2).sum(), abs=1e-5)
    line = dict(zip(found["line"]["x"], found["line"]["y"], strict=True))
    assert min(line) < 22 / 480 < max(line)
    assert all(y == pytest.approx(coefficient_fraction(x), rel=1e-3) for x, y in line.items())


def test_the_data_are_json_that_any_browser_reads(analysis):
    rows = tuple(replace(row, tail_exponent=math.inf, energy=math.nan) for row in analysis.matrices)
    strange = replace(analysis, matrices=rows)
    found = picture_data(strange, matrix_columns(strange))
    assert json.loads(json.dumps(found, allow_nan=False)) == json.loads(json.dumps(found))
    by_title = {one["title"]: one for one in found["columns"]}
    assert by_title["energy"]["values"] is None, "no number in it"
    assert by_title["name"]["values"] is None
    assert by_title["σ"]["values"] == [float(f"{row.sigma:.6g}") for row in rows]


def test_a_matrix_without_histogram_has_none(analysis):
    (first, _) = analysis.spectra
    found = picture_data(replace(analysis, spectra=(first,)), matrix_columns(analysis))
    assert [one is None for one in found["spectra"]] == [False, True]
    assert found["spectra"][0]["counts"] == first.counts


def test_long_names_may_break_after_dots():
    assert breakable("a.<b>.c") == "a.<wbr>&lt;b&gt;.<wbr>c"

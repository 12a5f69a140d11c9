"""The columns of an analysis's page and the data of its pictures."""

import json
import math
from dataclasses import make_dataclass, replace

import numpy as np
import pytest

from loca_theory.checkpoints import analyze
from loca_theory.checkpoints.rows import Matrix
from loca_theory.expressivity import coefficient_fraction
from loca_theory.plotting.analysis_columns import (
    allocation_columns,
    comparison_columns,
    matrix_columns,
)
from loca_theory.plotting.error_columns import identity
from loca_theory.plotting.interactive import picture_data
from loca_theory.plotting.templates import breakable

NOISE = np.random.default_rng(0).normal(size=(24, 20)).astype("float32")
WEIGHTS = {"a.0.q_proj.weight": NOISE, "a.1.v_proj.weight": 2 * NOISE[:, ::-1].copy()}


@pytest.fixture(scope="module")
def analysis():
    import torch

    tuned = {name: torch.from_numpy(matrix) for name, matrix in WEIGHTS.items()}
    return analyze({name: torch.zeros(24, 20) for name in tuned}, tuned, ranks=[1, 30])


def with_fields(row, **further):
    """A row of a type with further fields, as a later version of the package may have it."""
    fields = [(name, object) for name in further if not hasattr(row, name)]
    longer = make_dataclass("Longer", fields, bases=(type(row),), frozen=True)
    return longer(**(vars(row) | further))


def test_a_field_that_rows_have_is_a_column(analysis):
    titles = [column.title for column in matrix_columns(analysis)]
    assert "‖ΔW‖/‖W₀‖" not in titles
    rows = tuple(with_fields(row, relative_norm=0.5, intruders=None) for row in analysis.matrices)
    found = {one.title: one for one in matrix_columns(replace(analysis, matrices=rows))}
    assert found["‖ΔW‖/‖W₀‖"].text(rows[0]) == "0.5"
    assert "intruders" not in found, "missing for every matrix"


def test_every_field_of_a_matrix_that_a_reader_needs_has_a_column(analysis):
    read = set()

    class Row:
        def __getattribute__(self, name):
            read.add(name)
            return getattr(analysis.matrices[0], name)

    for column in matrix_columns(analysis):
        column.value(Row())
    unread = set(Matrix.__dataclass_fields__) - read
    assert unread == {"mean", "tv_low", "tv_high", "mp_wasserstein", "T"}


def test_cells_have_the_numbers_of_the_errors(analysis):
    columns = {column.heading: column for column in matrix_columns(analysis)}
    assert not [title for title in columns if "r = 30" in title], "no budget of that rank fits"
    row = analysis.matrices[1]
    errors = {one.method: one for one in analysis.errors if one.name == row.name}
    assert columns["D, r = 1"].value(row) == errors["D"].error
    assert columns["R shuffled, r = 1"].value(row) == errors["R"].shuffled_error
    worth = errors["D"].spectral_error - errors["D"].error
    assert columns["D worth, r = 1"].value(row) == worth
    assert columns["D worth, r = 1"].text(row) == f"{worth:+.3f}"
    best = min(errors.values(), key=lambda one: one.error).method
    assert columns["best, r = 1"].text(row) == best
    assert "R worth, r = 1" not in columns
    assert "DCT, best coefficients" in columns["D, r = 1"].explanation


def test_two_fine_tunes_of_one_name_are_told_apart(analysis):
    def of(row, tuned, **changed):
        return replace(with_fields(row, tuned=tuned), **changed)

    errors = tuple(
        of(one, tuned, error=0.25 * k)
        for k, tuned in enumerate(("x", "y"))
        for one in analysis.errors
    )
    both = replace(
        analysis,
        matrices=tuple(of(one, tuned) for tuned in ("x", "y") for one in analysis.matrices),
        errors=errors,
        spectra=tuple(of(one, tuned) for tuned in ("x", "y") for one in analysis.spectra),
    )
    columns = matrix_columns(both)
    assert [identity(row)[0] for row in both.matrices] == ["x", "x", "y", "y"]
    (column,) = [column for column in columns if column.heading == "D, r = 1"]
    assert [column.value(row) for row in both.matrices] == [0, 0, 0.25, 0.25]
    found = picture_data(both, columns)
    assert [row["tuned"] for row in found["rows"]] == ["x", "x", "y", "y"]
    assert len(found["spectra"]) == 4


def test_tables_that_a_result_may_have_are_columns_of_their_fields():
    pair = make_dataclass("Pair", ["name", "first", "second", "cosine", "sign_conflict"])
    rows = [pair("a", "x", "y", -0.25, None)]
    found = {column.title: column.text(rows[0]) for column in comparison_columns(rows)}
    assert found == {"name": "a", "first": "x", "second": "y", "cosine": "-0.250"}
    part = make_dataclass("Part", ["name", "size", "numbers", "retained"])
    rows = [part("a", 3, 12288, 0.5)]
    found = {column.title: column.text(rows[0]) for column in allocation_columns(rows)}
    assert found == {"name": "a", "size": "3", "numbers": "12,288", "retained": "50.0%"}


def test_the_map_has_every_matrix_at_its_budget_and_the_line_between_the_methods(analysis):
    found = picture_data(analysis, matrix_columns(analysis))
    assert found["ranks"] == [1]
    # A rank-1 budget of the paper's accounting: (24 + 20)·1 numbers, two of them per coefficient.
    assert found["coefficients"] == {"1": [pytest.approx(22 / 480, rel=1e-5)] * 2}
    (errors,) = [one["values"] for one in found["columns"] if (one["title"], one["r"]) == ("R", 1)]
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

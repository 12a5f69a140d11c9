"""Checks against wrong alternatives: a statement that is nearly right must be refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import fft, stats

from loca_theory.claims import load_ledger, printed
from loca_theory.claims.checks import (
    complexity,
    convergence,
    dense,
    dependence,
    detection,
    fourier,
    normality,
    theorems,
)
from loca_theory.claims.estimates import Tier
from loca_theory.claims.rules import Verdict, decide
from loca_theory.expressivity import Budget, retained_energies

LEDGER = load_ledger()


def rng():
    return np.random.default_rng(0)


def verdict(name, **arguments):
    """Of a quick run, with other arguments of the check where some are given."""
    (claim,) = LEDGER.find([name])
    changed = replace(claim, arguments={**claim.arguments, **arguments})
    found, _, _ = changed.measure(Tier.QUICK, rng())
    return decide(claim.rule, found, error_rate=LEDGER.error_rate(claim))[0]


# --- Proposition 1 -----------------------------------------------------------------------------


def test_another_variance_is_refused(monkeypatch):
    assert verdict("proposition1.variance") is Verdict.SUPPORTED
    for factor in (0.8, 1.2):
        monkeypatch.setattr(normality, "_asymptotic_variance", lambda estimator, f=factor: f)
        assert verdict("proposition1.variance") is Verdict.NOT_SUPPORTED


def test_drawn_factors_are_those_of_drawn_inputs():
    """Means of (XᵀX)⁻¹: Σ⁻¹/(n − d − 1), from factors and from inputs themselves."""
    n, draws = 40, 20_000
    errors = normality.least_squares(np.random.default_rng(0), n, draws, 0.5)
    found = np.einsum("rik,rjk->ij", errors, errors) / (draws * 8)
    correlations = 0.5 ** abs(np.subtract.outer(*[range(8)] * 2))
    drawn = np.random.default_rng(3)
    inputs = drawn.multivariate_normal(np.zeros(8), correlations, (4000, n))
    gram = np.linalg.inv(inputs.transpose(0, 2, 1) @ inputs)
    scale = np.abs(gram.mean(axis=0)).max()
    np.testing.assert_allclose(found, gram.mean(axis=0), atol=0.02 * scale)


def test_the_distance_is_that_of_students_law(monkeypatch):
    """Without a prior an entry is Student's with n − 7 degrees of freedom, up to scale."""
    n = 20
    law = stats.t(n - 7)
    x = np.linspace(-30, 30, 200_001)
    gap = np.abs(law.pdf(x) - stats.norm.pdf(x, scale=law.std()))
    expected = float(np.trapezoid(gap, x)) / 2
    # Of 2000 draws the standard deviation is 0.0010, of 20,000 a third of that.
    error = 5 * 0.0010 / np.sqrt(10)
    # The prior is normal: with it ΔW is closer.
    assert normality._total_variation(rng(), n, 20_000) < expected - error
    monkeypatch.setattr(normality, "_SPREAD", 0.0)
    found = normality._total_variation(rng(), n, 20_000)
    assert found == pytest.approx(expected, abs=error)


def test_hubers_estimator_solves_its_equation():
    x, y = rng().standard_normal((200, 8)), rng().standard_t(3, (200, 4))
    score = np.clip(y - x @ normality.huber(x, y), -1.345, 1.345)
    assert np.abs(x.T @ score).max() < 1e-3 * len(x)


def test_hubers_asymptotic_variance_is_the_errors_where_nothing_is_clipped(monkeypatch):
    """Without clipping it is the errors' own variance: 3 for 3 degrees of freedom."""
    monkeypatch.setattr(normality, "_TUNING", 390.0)
    assert normality._asymptotic_variance.__wrapped__("huber") == pytest.approx(3, rel=0.01)


# --- Theorems ----------------------------------------------------------------------------------


def test_the_ordering_at_four_is_the_one_that_fails_and_hangs_on_rounding():
    found, note = theorems.small_sizes(tier=Tier.QUICK)
    assert found == 1
    assert "K = 4, r = 1: LoRA 0.36" in note
    assert theorems.small_sizes(tier=Tier.QUICK, rounding="nearest")[0] == 0


def test_unweighted_selection_is_told_from_the_weighted_one():
    assert verdict("theorem2.equality", sizes=[8, 13]) is Verdict.SUPPORTED
    wrong = {"methods": ["F3 raw", "D"], "sizes": [8], "r": 2}
    assert verdict("theorem2.equality", **wrong) is Verdict.NOT_SUPPORTED


@pytest.mark.parametrize("name", ["D", "F3", "F3 raw"])
def test_all_coefficients_keep_all_the_energy(name):
    draws = np.random.default_rng(0).standard_normal((3, 5, 5))
    np.testing.assert_allclose(dense._RETAINED[name](draws, 25), np.square(draws).sum(axis=(1, 2)))


def test_weighted_coefficients_are_those_of_the_package():
    draws = np.random.default_rng(0).standard_normal((4, 8, 8))
    for name in ("D", "F3"):
        expected = [
            retained_energies(torch.from_numpy(w), name, [Budget(8, 8, 2)])[0] for w in draws
        ]
        np.testing.assert_allclose(dense._RETAINED[name](draws, 16), expected)


def test_a_shape_that_is_not_square_is_compared_as_well():
    found, note = theorems.order(shapes=[(400, 200)], ranks=[8])
    assert note.startswith("3 gaps; the smallest at 400×200, r = 8 (")
    assert found > 0


# --- Lemmas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, 5, 8, 9])
def test_condition_u_marks_what_lies_beyond_the_middle(size):
    """Against a written-out list of the pairs."""
    seen = set()
    for i in range(size):
        for j in range(size):
            mirror = (-i % size, -j % size)
            if mirror == (i, j):
                continue
            assert fourier.is_marked(i, j, size) != fourier.is_marked(*mirror, size)
            seen.add(frozenset([(i, j), mirror]))
    own = (1 + (size % 2 == 0)) ** 2
    assert len(seen) == (size**2 - own) // 2


def test_maps_are_those_of_the_transform():
    w = np.random.default_rng(0).standard_normal((5, 5))
    f = np.fft.fft2(w, norm="ortho")
    for matrix, part in zip(fourier.maps(5), (f.real, f.imag), strict=True):
        np.testing.assert_allclose((matrix @ w.ravel()).reshape(5, 5), part, atol=1e-12)


# --- Costs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "right"),
    [("sparse", "B pq"), ("dense", "pq (p + q)"), ("four indices", "p²q²"), ("fast", "pq log pq"),
     ("low rank", "rpq")],
)  # fmt: skip
def test_every_form_has_one_order(form, right):
    for order in complexity._ORDERS:
        found = complexity.growth(rng=rng(), form=form, order=order)
        fits = all(0.9 <= value <= 1.1 for value in found.values())
        assert fits == (order == right), order


def test_the_fast_transform_is_the_transform():
    x = np.random.default_rng(0).standard_normal(64)
    found, multiplications = complexity.fast_cosine(x)
    np.testing.assert_allclose(found, fft.dct(x, 2) / 2, atol=1e-12)
    assert multiplications == 32 * 6


def test_a_wrong_average_is_found(monkeypatch):
    rows = dict(printed.TABLES["glue"]["base"])
    rows["LoRA"] = {**rows["LoRA"], "average": 86.3}
    assert verdict("tables.glue-averages") is Verdict.SUPPORTED
    monkeypatch.setitem(printed.TABLES["glue"], "base", rows)
    assert verdict("tables.glue-averages") is Verdict.NOT_SUPPORTED


# --- Dependence and the toy experiment ---------------------------------------------------------


def crossings():
    given = {"structure": "equicorrelated", "ranks": [8, 16]}
    return dependence.reference_crossings(tier=Tier.QUICK, rng=rng(), **given)


def test_a_crossing_is_where_the_gap_changes_its_sign(monkeypatch):
    """For made-up losses whose gap is 0.01·(0.12 − ρ) + 0.02·(0.12 − ρ)² for every rank."""

    def losses(structure, rho, ranks, draws, seed):
        noise = np.random.default_rng(0).standard_normal((draws, 1))
        noise -= noise.mean()
        gap = 0.01 * (0.12 - rho) + 0.02 * (0.12 - rho) ** 2
        return np.repeat(300**2 * (0.5 + gap + 1e-5 * noise), len(ranks), axis=1)

    monkeypatch.setattr(dependence, "_low_rank_losses", losses)
    monkeypatch.setattr(dependence, "exact_error", lambda method, budget: 0.5)
    found = crossings()
    for part in found.values():
        assert part.value == pytest.approx(0.12, abs=2e-4)
        assert part.standard_error == pytest.approx(1e-5 / 0.01 / 5, rel=0.3)


def test_a_missing_crossing_is_told_rank_by_rank(monkeypatch):
    monkeypatch.setattr(
        dependence, "_low_rank_losses",
        lambda structure, rho, ranks, draws, seed: np.full((draws, len(ranks)), 300.0**2),
    )  # fmt: skip
    found = crossings()
    assert found == {"r = 8, none up to 0.3": 0.3, "r = 16, none up to 0.3": 0.3}


def test_losses_of_low_rank_are_what_its_approximation_leaves():
    w = dependence.STRUCTURES["equicorrelated"].family(300, 300, np.random.default_rng([7, 0]))(0.1)
    u, s, vh = np.linalg.svd(w)
    left = w - (u[:, :8] * s[:8]) @ vh[:8]
    found = dependence._low_rank_losses("equicorrelated", 0.1, [8], 1, 7)
    assert found[0, 0] == pytest.approx(np.square(left).sum())


def test_printed_values_are_judged_in_errors_of_a_mean_of_a_hundred(monkeypatch):
    made_up = np.array([[0.0, 0.2] * 50])
    monkeypatch.setattr(detection, "_statistics", lambda *given, **options: made_up)
    found, _ = detection.statistic(tier=Tier.QUICK, rng=rng(), rhos=[0.1], printed=[0.12])
    (part,) = found.values()
    assert part.value == pytest.approx(2.0, rel=0.01)
    assert part.standard_error == pytest.approx(1.0)


def test_searches_are_compared_problem_by_problem(monkeypatch):
    losses = {"central": [0.1, None, 0.3, 0.2], "coefficients-only": [0.2, 0.2, None, 0.2]}
    monkeypatch.setattr(convergence, "evaluate", lambda cell: {"loss": losses[cell.search.name]})
    given = {"search": "central", "over": "coefficients-only"}
    assert convergence.final_loss(tier=Tier.QUICK, rng=rng(), **given)[0].successes == 2

"""Published adapters: their families, quotas, rearrangements and fits, against dense algebra."""

import math
from functools import partial
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.fft
import scipy.linalg
import torch
from scipy import stats

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import (
    METHODS,
    Accounting,
    Budget,
    exact_error,
    retained_energies,
)
from loca_theory.expressivity.laws.order_statistics import expected_top_sum
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods import (
    BlockCirculant,
    BlockLowRank,
    Cosine,
    Haar,
    Hadamard,
    Hartley,
    fitted,
)
from loca_theory.expressivity.methods.coordinates.groups import (
    GroupedSelection,
    bands,
    quotas,
    rows,
    sizes_of,
)
from loca_theory.expressivity.methods.coordinates.shared import SharedCoordinates
from loca_theory.transforms import dct2

from .dense import ROUNDING, approximated, gaussian

SHAPES = [(8, 8, 2), (12, 8, 2), (8, 20, 4), (9, 6, 2)]
shapes = pytest.mark.parametrize(
    ("p", "q", "r"), SHAPES, ids=[f"{p}x{q} r{r}" for p, q, r in SHAPES]
)


def projector(method, budget):
    """The matrix of a linear method, from its approximations of unit matrices."""
    units = np.eye(budget.p * budget.q).reshape(-1, budget.p, budget.q)
    return np.stack([approximated(unit, method, budget).ravel() for unit in units])


# --- bases ----------------------------------------------------------------------------------


def hartley(p, q):
    angles = np.add.outer(
        np.outer(np.arange(p), np.arange(p)) / p, np.outer(np.arange(q), np.arange(q)) / q
    )
    angles = 2 * np.pi * angles.transpose(0, 2, 1, 3).reshape(p * q, p * q)
    return (np.cos(angles) + np.sin(angles)) / math.sqrt(p * q)


def hadamard(p, q):
    power = q & -q
    rows = np.kron(np.eye(q // power), scipy.linalg.hadamard(power) / math.sqrt(power))
    return np.kron(np.eye(p), rows)


def haar(p, q):
    def along(n):
        matrix = np.zeros((n, n))
        for i in range(n // 2):
            matrix[i, 2 * i : 2 * i + 2] = 1, 1
            matrix[-(-n // 2) + i, 2 * i : 2 * i + 2] = 1, -1
        matrix /= math.sqrt(2)
        if n % 2:
            matrix[n // 2, n - 1] = 1
        return matrix

    return np.kron(along(p), along(q))


@pytest.mark.parametrize(("p", "q"), [(4, 8), (5, 12), (7, 7), (1, 6)], ids=str)
@pytest.mark.parametrize(
    ("basis", "dense"),
    [(Hartley(), hartley), (Hadamard(), hadamard), (Haar(), haar)],
    ids=["Hartley", "Hadamard", "Haar"],
)
def test_a_basis_is_its_dense_orthonormal_matrix(basis, dense, p, q):
    matrix, rows = gaussian(p, q), dense(p, q)
    np.testing.assert_allclose(rows @ rows.T, np.eye(p * q), atol=ROUNDING)
    coordinates = basis.coordinates(torch.from_numpy(matrix))
    np.testing.assert_allclose(coordinates.numpy(), rows @ matrix.ravel(), atol=ROUNDING)
    np.testing.assert_allclose(basis.matrix(coordinates, p, q).numpy(), matrix, atol=ROUNDING)


# --- linear families ------------------------------------------------------------------------

LINEAR = [
    "WaveFT",
    "WaveFT-PEFT",
    "SHiRA",
    "Super-Tuning",
    "SSH",
    "sDCTFT",
    "C3A",
    "MiSS",
    "LoRA-XS",
    "TinyLoRA",
    "LoRA-FA",
    "MiCA",
]


@shapes
@pytest.mark.parametrize("method", LINEAR)
def test_a_linear_family_projects_on_as_many_dimensions_as_it_trains(p, q, r, method):
    """For WaveFT as shipped, the dimension is random at odd sides; its mean is tested below."""
    budget = Budget(p, q, r)
    if not METHODS[method].exists(budget):
        pytest.fail("choose shapes at which all exist")
    projection = projector(method, budget)
    np.testing.assert_allclose(projection, projection.T, atol=ROUNDING)
    np.testing.assert_allclose(projection @ projection, projection, atol=ROUNDING)
    count = METHODS[method].parameters(budget)
    assert count <= (p + q) * r
    if method != "WaveFT-PEFT" or (p * q) % 4 == 0:
        assert np.trace(projection) == pytest.approx(count, abs=ROUNDING * p * q)
        assert exact_error(method, budget) == pytest.approx(1 - count / (p * q))
    matrix = gaussian(p, q)
    retained = retained_energies(matrix, method, [budget], np.random.default_rng(7))
    assert retained[0] == pytest.approx(matrix.ravel() @ projection @ matrix.ravel(), abs=ROUNDING)


@pytest.mark.parametrize(
    "method", ["sDCTFT", "LoRA-XS", "TinyLoRA", "LoRA-FA", "MiCA", "WaveFT-PEFT"]
)
def test_the_mean_over_the_random_choices_is_exact(method):
    """At a matrix whose energy is in a few coordinates; wrong for one seed in 10⁴."""
    matrix, budgets = np.ones((9, 7)) + gaussian(9, 7), [Budget(9, 7, 1), Budget(9, 7, 3)]
    exact = mean_retained_energies(matrix, [METHODS[method]], budgets)[method]
    draws = np.array(
        [
            retained_energies(matrix, method, budgets, np.random.default_rng([3, i]))
            for i in range(400)
        ]
    )
    errors = draws.std(axis=0, ddof=1) / math.sqrt(len(draws))
    limit = stats.t.isf(1e-4 / 2 / 2, len(draws) - 1)
    assert (np.abs(draws.mean(axis=0) - exact) < limit * errors).all()


# --- columns --------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q", "r"), [(7, 9, 2), (8, 6, 1), (5, 12, 3)], ids=str)
def test_the_best_columns_of_all(p, q, r):
    """Against every choice of columns of the dense DCT basis."""
    matrix, budget, method = gaussian(p, q), Budget(p, q, r), METHODS["DCT-columns"]
    basis = scipy.fft.dct(np.eye(q), norm="ortho", axis=0).T
    count = method.count(budget)
    assert count == (p + q) * r // (p + 1)
    candidates = [basis[:, list(chosen)] for chosen in combinations(range(q), count)]
    products = [matrix @ columns @ columns.T for columns in candidates]
    best = min(products, key=lambda product: np.linalg.norm(matrix - product))
    np.testing.assert_allclose(approximated(matrix, "DCT-columns", budget), best, atol=ROUNDING)
    retained = retained_energies(matrix, "DCT-columns", [budget])[0]
    assert retained == pytest.approx(np.sum(best**2), abs=ROUNDING)
    assert method.stored_bits(budget) == pytest.approx(count * (16 * p + math.log2(q)))


# --- quotas ---------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [rows, bands, partial(bands, count=5)])
def test_quotas_are_equal_as_far_as_the_groups_are_large_enough(groups):
    sizes = np.bincount(groups(9, 14))
    assert sizes.sum() == 9 * 14
    previous = np.zeros_like(sizes)
    for count in range(9 * 14 + 1):
        counts = quotas(sizes, count)
        assert counts.sum() == count
        open_ones = counts[counts < sizes]
        if len(open_ones):
            assert counts.max() - open_ones.min() <= 1
        assert (counts >= previous).all()
        previous = counts


def test_random_bands_fill_the_quotas_of_every_count():
    method, budget = METHODS["sDCTFT"], Budget(9, 14, 1)
    drawn = method.draw(budget, 9 * 14, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(drawn), np.arange(9 * 14))
    labels = bands(9, 14)
    sizes = np.bincount(labels)
    for count in range(9 * 14 + 1):
        in_each = np.bincount(labels[drawn[:count]], minlength=3)
        np.testing.assert_array_equal(in_each, quotas(sizes, count))


@pytest.mark.parametrize("groups", [rows, bands])
@pytest.mark.parametrize(("p", "q"), [(1, 2), (9, 14), (31, 16), (64, 64)])
def test_sizes_of_groups_need_no_list_of_all_coordinates(groups, p, q):
    np.testing.assert_array_equal(sizes_of(groups, p, q), np.bincount(groups(p, q)))


@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 6), (5, 4), (7, 9), (8, 6)])
def test_the_selections_of_a_padded_wavelet_are_counted_by_sub_band(p, q):
    method, budget = METHODS["WaveFT-PEFT"], SimpleNamespace(p=p, q=q)
    assert method.selected(budget) == SharedCoordinates.selected(method, budget)


@pytest.mark.parametrize("groups", [rows, partial(bands, count=4)])
@pytest.mark.parametrize("accounting", ["paper", "trainable"])
def test_a_grouped_selection_is_the_best_of_each_group(groups, accounting):
    method = GroupedSelection("own", basis=Cosine(), groups=groups)
    budget = Budget(10, 8, 2, Accounting(accounting))
    matrix = gaussian(10, 8)
    coordinates = dct2(torch.from_numpy(matrix)).flatten().numpy()
    labels = groups(10, 8)
    sizes = np.bincount(labels)
    counts = quotas(sizes, budget.chosen_coefficients)
    best = [np.sort(coordinates[labels == g] ** 2)[::-1][:c].sum() for g, c in enumerate(counts)]
    retained = retained_energies(matrix, method, [budget])[0]
    assert retained == pytest.approx(sum(best), rel=ROUNDING)
    sums = [expected_top_sum(int(n), int(c), 1) for n, c in zip(sizes, counts, strict=True)]
    assert method.expected_errors([budget])[0] == pytest.approx(1 - sum(sums) / 80, rel=ROUNDING)


# --- rearrangements -------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "p", "q", "r"), [(2, 8, 12, 2), (3, 9, 12, 3), (2, 8, 12, 4)])
def test_blocks_have_the_best_rank_of_their_own(k, p, q, r):
    method, matrix = BlockLowRank("own", k=k), gaussian(p, q)
    approximation = approximated(matrix, method, Budget(p, q, r))
    height, width = p // k, q // k
    for i, j in product(range(k), repeat=2):
        block = np.s_[i * height : (i + 1) * height, j * width : (j + 1) * width]
        u, s, vh = np.linalg.svd(matrix[block], full_matrices=False)
        best = (u[:, : r // k] * s[: r // k]) @ vh[: r // k]
        np.testing.assert_allclose(approximation[block], best, atol=ROUNDING)
    block = Budget(height, width, r // k)
    assert exact_error(method, Budget(p, q, r)) == exact_error("LoRA", block)


@pytest.mark.parametrize(("p", "q", "r"), [(8, 12, 1), (8, 12, 3), (7, 9, 2)], ids=str)
def test_a_kronecker_product_is_found_and_no_other_is_nearer(p, q, r):
    """The gradient vanishes at the best A⊗B: the rest is orthogonal to dA⊗B and to A⊗dB."""
    budget, matrix = Budget(p, q, r), gaussian(p, q)
    a, c = METHODS["LoKr"].factor(budget)
    small, large = gaussian(a, c, 1), gaussian(p // a, q // c, 2)
    product_ = np.kron(small, large)
    np.testing.assert_allclose(approximated(product_, "LoKr", budget), product_, atol=ROUNDING)
    product = approximated(matrix, "LoKr", budget)
    best_large = product[: p // a, : q // c]
    best_small = product[:: p // a, :: q // c]
    residual = matrix - product
    for unit in np.eye(a * c).reshape(-1, a, c):
        assert np.sum(residual * np.kron(unit, best_large)) == pytest.approx(0, abs=1e-9)
    for unit in np.eye(p * q // a // c).reshape(-1, p // a, q // c):
        assert np.sum(residual * np.kron(best_small, unit)) == pytest.approx(0, abs=1e-9)
    value = exact_error("LoKr", budget)
    assert value == exact_error("LoRA", Budget(a * c, p * q // (a * c), 1))


# --- fits -----------------------------------------------------------------------------------

FITTED = ["LoHa", "HiRA", "GLoRA", "RandLoRA"]


def stream(seed=7):
    """The random numbers of one fit."""
    return np.random.default_rng(np.random.default_rng(seed).integers(1 << 63, size=4))


def random_factors(rng, p, q, rank):
    drawn = torch.from_numpy(rng.standard_normal((rank, p + q)))
    return drawn[:, :p].T, drawn[:, p:]


def loha(budget):
    """(B₁A₁)⊙(B₂A₂) and its start."""
    rng, rank = stream(), METHODS["LoHa"].rank(budget)
    factors = [factor for _ in range(2) for factor in random_factors(rng, budget.p, budget.q, rank)]
    return lambda b, a, d, c: (b @ a) * (d @ c), factors


def hira(budget):
    """W₀⊙(BA) and its start."""
    rng = stream()
    weights = torch.from_numpy(rng.standard_normal((budget.p, budget.q)))
    factors = random_factors(rng, budget.p, budget.q, budget.r)
    return lambda b, a: weights * (b @ a), [*factors]


def glora(budget):
    """W₀⊙(B₁A₁) + B₂A₂ and its start, with B₂ = 0."""
    rng, rank = stream(), METHODS["GLoRA"].rank(budget)
    weights = torch.from_numpy(rng.standard_normal((budget.p, budget.q)))
    (b, a), (_, c) = (random_factors(rng, budget.p, budget.q, rank) for _ in range(2))
    return lambda b, a, d, c: weights * (b @ a) + d @ c, [b, a, torch.zeros_like(b), c]


def randlora(budget):
    """The sum over n of B_n Λ_n A Γ_n, term by term, and its start."""
    rank = METHODS["RandLoRA"].rank(budget)
    d, height = min(budget.p, budget.q), max(budget.p, budget.q)
    count = -(-d // rank)
    drawn = torch.from_numpy(stream().standard_normal((rank, count * height + d)))
    bases = [drawn[:, n * height : (n + 1) * height].T for n in range(count)]
    right = drawn[:, count * height :]

    def form(inner, outer):
        terms = [
            base @ torch.diag(inner[n]) @ right @ torch.diag(outer[n])
            for n, base in enumerate(bases)
        ]
        change = torch.stack(terms).sum(dim=0)
        return change.T if budget.p < budget.q else change

    start = [torch.ones(count, rank), torch.ones(count, d)]
    return form, [factor.double() for factor in start]


def vera(budget):
    """diag(b) B diag(d) A and its start."""
    left, right = random_factors(stream(), budget.p, budget.q, METHODS["VeRA"].rank(budget))
    start = [torch.ones(len(left)).double(), torch.ones(len(right)).double()]
    return lambda b, d: b[:, None] * left * d @ right, start


def least_squares_rounds(target, form, factors, rounds):
    """Naive alternation: the dense design matrix of each factor in turn, from unit factors."""
    factors = [*factors]
    for _ in range(rounds):
        for i, factor in enumerate(factors):
            units = torch.eye(factor.numel(), dtype=torch.float64).reshape(-1, *factor.shape)
            offset = form(*factors[:i], torch.zeros_like(factor), *factors[i + 1 :])
            rows = [form(*factors[:i], unit, *factors[i + 1 :]) - offset for unit in units]
            design = torch.stack(rows, dim=-1).flatten(0, 1).numpy()
            solved = np.linalg.lstsq(design, (target - offset.numpy()).ravel(), rcond=None)
            factors[i] = torch.from_numpy(solved[0]).reshape(factor.shape)
    return factors


FITS = [
    ("LoHa", loha, Budget(8, 8, 4)),
    ("HiRA", hira, Budget(7, 6, 2)),
    ("GLoRA", glora, Budget(6, 9, 2)),
    ("RandLoRA", randlora, Budget(6, 7, 2)),
]


@pytest.mark.parametrize(("method", "naive", "budget"), FITS, ids=FITTED)
def test_a_fit_alternates_least_squares_and_ends_where_gradients_do(
    monkeypatch, method, naive, budget
):
    monkeypatch.setattr(fitted, "_TOLERANCE", 1e-12)
    matrix = gaussian(budget.p, budget.q)
    form, start = naive(budget)
    assert METHODS[method].parameters(budget) == sum(factor.numel() for factor in start)
    factors = least_squares_rounds(matrix, form, start, rounds=3)
    rounds = METHODS[method].rounds_of(torch.from_numpy(matrix), budget, stream())
    third = [next(rounds) for _ in range(3)][-1]
    # Normal equations square the condition numbers, some hundred here, of three rounds.
    torch.testing.assert_close(third, form(*factors), rtol=0, atol=1e-8)
    ours = np.sum((matrix - approximated(matrix, method, budget)) ** 2)
    factors = least_squares_rounds(matrix, form, factors, rounds=400)
    residual = float((torch.from_numpy(matrix) - form(*factors)).square().sum())
    assert ours == pytest.approx(residual, rel=1e-5)


@pytest.mark.parametrize("budget", [Budget(12, 10, 1), Budget(7, 16, 1)], ids=str)
def test_the_fit_of_vera_ends_where_least_squares_gain_nothing(monkeypatch, budget):
    """Naive rounds for b and d from where it ends, of which the first finds its b again."""
    monkeypatch.setattr(fitted, "_TOLERANCE", 1e-12)
    matrix = gaussian(budget.p, budget.q)
    form, (b, d) = vera(budget)
    ours = approximated(matrix, "VeRA", budget)
    left, right = random_factors(stream(), budget.p, budget.q, METHODS["VeRA"].rank(budget))
    # Row i is b_i times a combination of the rows of A, whose weights are those of B times d.
    weights = torch.from_numpy(np.linalg.lstsq(right.T.numpy(), ours.T, rcond=None)[0].T) / left
    d = torch.linalg.svd(weights)[2][0]
    b, d = least_squares_rounds(matrix, form, [b, d], rounds=1)
    after = float((torch.from_numpy(matrix) - form(b, d)).square().sum())
    # The last ten steps gained less than 1e-12 of the energy.
    assert np.sum((matrix - ours) ** 2) == pytest.approx(after, rel=1e-6)


# --- existence and costs --------------------------------------------------------------------


MISSING = [
    ("C3A", Budget(5, 9, 1), "5 and 9 and is at least 4 at r = 1: the common divisors are 1;"),
    (BlockCirculant("own", block_size=3), Budget(8, 8, 2), "2 at r = 2: choose from 2, 4, 8$"),
    ("GraLoRA", Budget(8, 8, 3), "not 8x8 and r = 3; choose a multiple of 2 for r$"),
    (BlockLowRank("own", k=4), Budget(6, 9, 2), "k = 4, not 6x9 and r = 2; k may be 1: Block"),
    ("LoHa", Budget(8, 8, 1), "cost 32 numbers; r = 1 pays for 16, so choose a larger r"),
    ("LoKr", Budget(7, 7, 1, Accounting.DOF), "14 numbers for factors of 1x7 and 7x1; .* for 13"),
    ("OFT", Budget(7, 7, 1), "at least 2 that divides q = 7 and that the 14 numbers of r = 1 pay"),
    ("HRA", Budget(5, 9, 1), "which cost 18 numbers; r = 1 pays for 14, so choose a larger r"),
    ("RoAd", Budget(5, 8, 1), "p = 5 is odd; choose an even p"),
    ("BD-LoRA", Budget(8, 8, 1), "p divisible by k = 2 and 24 numbers, not p = 8 and the 16 of"),
    ("BD-LoRA", Budget(9, 9, 3), "p divisible by k = 2 and 27 numbers, not p = 9 and the 54 of"),
    ("VB-LoRA", Budget(7, 9, 1), "two vectors of 1 numbers, and .* 16 mixtures; r = 1 pays for 16"),
    ("RandLoRA", Budget(7, 7, 1, Accounting.DOF), "needs at least 14 numbers; r = 1 pays for 13"),
]


@pytest.mark.parametrize(("method", "budget", "message"), MISSING)
def test_a_method_that_does_not_exist_says_where_it_does(method, budget, message):
    method_object = METHODS[method] if isinstance(method, str) else method
    assert not method_object.exists(budget)
    for use in (method_object.check_budget, method_object.parameters, method_object.stored_bits):
        with pytest.raises(InvalidArgumentError, match=message):
            use(budget)


def test_bits_are_those_of_numbers_and_of_chosen_indices():
    """K = 16, r = 2: N0 = 64 numbers; 32 chosen coefficients, or 21 of 130 locations."""
    budget = Budget(16, 16, 2, value_bits=8)
    bits = {name: method.stored_bits(budget) for name, method in METHODS.items()}
    assert bits["LoRA"] == bits["random DCT"] == bits["SHiRA"] == bits["GraLoRA"] == 64 * 8
    assert bits["random Fourier"] == 2 * 32 * 8
    assert bits["LoCA"] == bits["entries"] == bits["Fourier"] == 32 * (8 + 8)
    assert bits["Fourier pairs"] == pytest.approx(21 * (2 * 8 + math.log2(130)))
    # Two coefficients of sixteen per row.
    assert bits["QWHA"] == 32 * (8 + 4)
    sizes = np.bincount(bands(16, 16))
    assert bits["MaCP"] == pytest.approx(32 * 8 + (quotas(sizes, 32) * np.log2(sizes)).sum())
    assert bits["VeRA"] == 64 * 8
    # Four vectors of 8 numbers; a weight and two indices for each of 8 mixtures.
    assert bits["VB-LoRA"] == 4 * 8 * 8 + 8 * (8 + 2 * 2)
    assert {name for name, value in bits.items() if value is None} == {
        "printed line",
        "upper bound",
        "lower bound",
        "rate-distortion",
    }


def test_oracles_are_those_that_look_at_the_matrix():
    oracles = {name for name, method in METHODS.items() if method.is_oracle}
    assert oracles == {"Fourier pairs", "Fourier", "LoCA", "entries", "QWHA", "MaCP", "DCT-columns"}

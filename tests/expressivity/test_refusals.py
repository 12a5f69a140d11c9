"""Calls that the package's functions refuse, each with its message."""

import re

import numpy as np
import pytest
import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import (
    METHODS,
    Accounting,
    Budget,
    approximate,
    exact_error,
    spectral_error,
)
from loca_theory.expressivity import retained_energies as retained
from loca_theory.expressivity.coders.coder import Transform
from loca_theory.expressivity.coders.patches import Patches
from loca_theory.expressivity.coders.registry import measure_all
from loca_theory.expressivity.energy_bounds import selection_bound, spiked_low_rank_bound
from loca_theory.expressivity.laws.low_rank_exact import LARGEST_EXACT_RANK, expected_leading_energy
from loca_theory.expressivity.laws.unequal_variances import expected_top_sum_of_unequal
from loca_theory.expressivity.limits import limit_crossings
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.methods.registry import find_method, find_methods
from loca_theory.expressivity.monte_carlo import ErrorCell, Sampler, estimate
from loca_theory.expressivity.simulation import Simulation
from loca_theory.expressivity.theorem1.bounds import proven_gaps
from loca_theory.sweeps import Runner

SMALL = Budget(8, 8, 2)
RNG = np.random.default_rng(0)
MAIN_TEXT = Accounting.MAIN_TEXT


def limit(name, budget=SMALL):
    return find_method(name).limit(budget)


def drawn(name, sampler=Sampler.REDUCED, p=8, r=1):
    return estimate([ErrorCell(METHODS[name], (Budget(p, 8, r),), sampler, (0, 2))], Runner(jobs=1))


def simulated(**options):
    settings = {"shapes": ((10, 10),), "ranks": (1, 2), "draws": 5, **options}
    return Simulation(
        **{**settings, "methods": find_methods(options.get("methods", ("LoRA", "LoCA")))}
    )


def coded(matrix, bits=1.0):
    return next(measure_all(matrix, [1.0, bits], RNG))


ONES = torch.ones(8, 8, dtype=torch.float64)
SPOILED = torch.where(torch.eye(8, dtype=torch.bool), torch.nan, ONES)
BAD = [
    (SPOILED, "matrix must be finite: 8 of 64 entries"),
    (ONES + 1j, "matrix must be real and floating, not"),
    (ONES.to_sparse(), "must be dense, not torch.sparse_coo; pass matrix.to_dense"),
    (ONES.to(torch.float8_e4m3fn), "widen it with matrix.float()"),
    (ONES.to("meta"), "matrix has no entries in memory: it is on "),
    (ONES.tolist(), "matrix must be a torch tensor or a NumPy array, not list; convert it"),
]
CALLS = [
    # budgets
    (
        lambda: Budget(8, 8, 5),
        "spends 80 numbers, but a 8x8 matrix has only 64; choose 1 <= r <= 4",
    ),
    (lambda: Budget(1, 5, 1), "spends 6 numbers, but a 1x5 matrix has only 5; choose a larger"),
    (lambda: Budget(3, 8, 0), "rank 0 does not fit a 3x8 matrix: choose 1 <= r <= 2"),
    (lambda: Budget(3, 8, 4), "rank 4 does not fit a 3x8 matrix: choose 1 <= r <= 2"),
    (lambda: Budget(3, 8, 4, "dof"), "rank 4 does not fit a 3x8 matrix: choose 1 <= r <= 3"),
    (lambda: Budget(1, 5, 2), "rank 2 does not fit a 1x5 matrix: choose a larger matrix"),
    (lambda: Budget(0, 4, 1), "at least one row and one column, not 0x4"),
    (lambda: Budget(4, -1, 1), "at least one row and one column, not 4x-1"),
    (lambda: Budget(2**27, 2**27, 1), "has too many entries to count in float64"),
    (lambda: Budget(8, 8, 1, Accounting.BITS, 0), "value_bits must be at least 1, not 0"),
    (lambda: Budget(8, 8, 1, "papers"), "unknown accounting 'papers'; did you mean paper?"),
    (lambda: Budget(8, 8, 4, MAIN_TEXT).chosen_locations, "42 locations, but the half spectrum of"),
    # exact errors and limits
    (lambda: exact_error("X", SMALL), "unknown method 'X'; did you mean LoRA-XS? Otherwise"),
    (lambda: find_method("fouriar"), "unknown method 'fouriar'; did you mean Fourier? Otherwise"),
    (lambda: exact_error("DoRA", SMALL), 'has no exact value at 8x8, rank 2; use engine="mont'),
    (lambda: exact_error("VeRA", SMALL), "VeRA has no exact value at 8x8, rank 2; use"),
    (lambda: exact_error("LoRA", Budget(600, 900, 257)), "LoRA has no exact value at 600x900"),
    (lambda: limit("DoRA"), "DoRA has no known limit at 8x8, rank 2; use"),
    (lambda: limit_crossings("dofs"), "unknown accounting 'dofs'"),
    (lambda: limit_crossings("bits"), 'accounting="bits" has no limit: an index costs more'),
    (
        lambda: expected_leading_energy(300, 300, LARGEST_EXACT_RANK + 1),
        "300x300 matrix need 1 <= r <= 256, not 257; use the Monte Carlo",
    ),
    (lambda: expected_leading_energy(300, 300), "1 <= r <= 256, not 300; use the Monte Carlo"),
    (lambda: expected_leading_energy(5, 9, 6), "5x9 matrix need 1 <= r <= 5, not 6"),
    (lambda: expected_leading_energy(5, 9, 0), "need 1 <= r <= 5, not 0"),
    (lambda: expected_leading_energy(10**6, 10**6, 1), "<= 131072, not 1000000x1000000; use the"),
    (lambda: expected_leading_energy(0, 3, 1), "at least one row and one column, not 0x3"),
    (lambda: expected_top_sum_of_unequal([1.0, -1.0], 1), "finite and not negative and count"),
    (lambda: expected_top_sum_of_unequal([1.0, np.nan], 1), "must be finite"),
    (lambda: expected_top_sum_of_unequal([1.0, np.inf], 1), "but some are not"),
    (lambda: expected_top_sum_of_unequal([1.0], -1), "not count=-1"),
    (lambda: selection_bound([-1.0, 2.0], SMALL), "weights must be finite and not negative"),
    (lambda: spiked_low_rank_bound(0.1, 3, Budget(9, 9, 2)), "between 1 and r = 2, not 3"),
    (lambda: proven_gaps(9, 3), "the theorem is about 1 <= r < K/3, not about r = 3 and K = 9"),
    # singular values
    *(
        (lambda v=values, n=n: spectral_error(v, n, Budget(8, 10, 1)), message)
        for values, message in (
            ([1.0] * 9, "must be all 8 of a 8x10 matrix, zeros included, not 9"),
            ([1.0] * 7, "zeros included, not 7"),
            (np.ones((8, 8)), "must be a vector of real numbers, not float64 of shape (8, 8)"),
            ("many", "must be a vector of real numbers, not <U4"),
            ([0.0] * 8, "must not all be 0: a matrix of zeros has no spectrum"),
            ([1.0] * 7 + [-1.0], "finite and not negative: 1 of 8 are not"),
            ([1.0] * 7 + [np.nan], "finite and not negative: 1 of 8 are not"),
        )
        for n in ("LoRA", "LoCA", "random Fourier")
    ),
    (lambda: spectral_error(np.ones(8), "DoRA", SMALL), "DoRA has no error that follows from"),
    # coders
    *(
        (lambda w=w: coded(w), "matrix is 0, or has entries that are not finite, so it has no")
        for w in (np.zeros((32, 32)), np.full((32, 32), np.nan))
    ),
    *(
        (lambda b=b: coded(np.ones((32, 32)), b), "bits must be")
        for b in (0, -1.0, 17, np.nan, "1")
    ),
    (
        lambda: Patches("any").approximate(np.ones((32, 40)), [1.0], Transform.NONE.basis((), RNG)),
        "patches of side 16 do not divide a 32x40 matrix; choose a side that divides both",
    ),
    # approximations of a matrix
    (lambda: approximate(torch.ones(8, 7), "LoCA", SMALL), "matrix must be of shape (8, 8), the"),
    (lambda: retained(torch.ones(1, 8, 8), "LoCA", [SMALL]), "shape of the budget, not (1, 8, 8)"),
    *(
        (lambda n=n: approximate(torch.ones(8, 8), n, SMALL), "only a formula for the error and")
        for n in ("printed line", "upper bound", "lower bound", "rate-distortion")
    ),
    *(
        (lambda n=n: retained(torch.ones(8, 8), n, [SMALL]), "random choices: pass rng=numpy.ran")
        for n in ("random Fourier", "random DCT", "FourierFT", "VeRA", "HiRA", "LoRA-XS", "sDCTFT")
    ),
    *(
        (lambda b=bad, f=f: f(b), message)
        for bad, message in BAD
        for f in (
            lambda w: approximate(w, "LoRA", SMALL),
            lambda w: retained(w, "entries", [SMALL]),
            lambda w: mean_retained_energies(w, find_methods("Fourier"), [SMALL]),
        )
    ),
    (lambda: retained(1e300 * ONES, "LoRA", [SMALL]), "matrix has entries of about 2^997, whose"),
    # draws
    *(
        (lambda n=n: drawn(n), "has no reduced sampler; use the exact engine")
        for n in ("printed line", "upper bound", "lower bound", "rate-distortion")
    ),
    (lambda: drawn("DoRA"), 'DoRA has no reduced sampler; use sampler="dense"'),
    (lambda: METHODS["VeRA"].sample([SMALL], RNG), 'VeRA has no reduced sampler; use sampler="d'),
    (lambda: drawn("LoCA", r=5), "budget larger than the matrix"),
    (lambda: simulated(shapes=()), "shapes is empty; give at least one"),
    (lambda: simulated(ranks=()), "ranks must be positive whole numbers"),
    (lambda: simulated(methods=()), "methods is empty"),
    (lambda: simulated(engines=()), "engines is empty"),
    (lambda: simulated(ranks=(1, 6)), "budget larger than the matrix"),
    (lambda: simulated(ranks=(0,)), "ranks must be positive whole numbers, not (0,)"),
    (lambda: simulated(shapes=((10, 10), (0, 3))), "at least one row"),
    (lambda: simulated(draws=0), "draws must be at least 1, not 0"),
    (lambda: simulated(seed=-2), "the seed must lie between 0 and 2**128 - 1, not -2"),
    (lambda: simulated(value_bits=0), "value_bits must be at least 1, not 0"),
    (lambda: simulated(methods=("LoCA", "DoRA"), sampler=Sampler.REDUCED), "DoRA has no reduced"),
    (
        lambda: simulated(ranks=(5,), accounting=MAIN_TEXT, methods=("LoCA", "Fourier pairs")),
        "66 locations, but the half spectrum of 10x10 has only 52",
    ),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_it_is_refused_and_says_why(call, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        call()

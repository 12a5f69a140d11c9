"""Matrices, their approximations and naive fits, for several test modules."""

import numpy as np

from loca_theory.expressivity import approximate

# Some hundred float64 operations on numbers of order one.
ROUNDING = 1e-11


def gaussian(p, q, seed=0):
    return np.random.default_rng([p, q, seed]).standard_normal((p, q))


def approximated(matrix, method, budget, seed=7):
    return approximate(matrix, method, budget, np.random.default_rng(seed)).numpy()


def projected(matrix, atoms, rcond=1e-10):
    """Least-squares fit of a matrix by the span of the rows of ``atoms``."""
    coefficients = np.linalg.lstsq(atoms.T, matrix.ravel(), rcond=rcond)[0]
    return (coefficients @ atoms).reshape(matrix.shape)

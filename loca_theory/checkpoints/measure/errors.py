"""Errors of every method on one increment, on its shuffled entries, and those expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.checkpoints.measure.rows import CodedError, Matrix, MatrixError
from loca_theory.checkpoints.measure.settings import Settings
from loca_theory.checkpoints.measure.shared_draws import Draws
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Budget, Method, spectral_error
from loca_theory.expressivity.coders.coder import Transform
from loca_theory.expressivity.coders.registry import CODERS, measure_all
from loca_theory.expressivity.matrices import mean_retained_energies
from loca_theory.expressivity.method_numbers import checked_numbers
from loca_theory.expressivity.methods import LowRank
from loca_theory.expressivity.methods.coordinates.bases import ENTRIES
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.coordinates.selection import Selection
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.pretrained.weights import UsesWeights
from loca_theory.expressivity.methods.registry import find_methods
from loca_theory.expressivity.spectral import has_spectral_error
from loca_theory.increments.shuffling import shuffle
from loca_theory.increments.truncated_svd import truncated_svd

_DCT = "LoCA"
# The control shows a cause, for which LoRA's error to a few thousandths is enough.
_OF_CONTROL = 3e-3
NOTICEABLE = 0.03
"""A smaller fraction of the energy makes no practical difference, and may be chance."""


def fitting_budget(
    p: int, q: int, r: int, settings: Settings, *, is_transposed: bool = False
) -> Budget | None:
    """The budget of a rank; None if it exceeds what the matrix holds for any of the methods."""
    with suppress(InvalidArgumentError):
        budget = Budget(p, q, r, settings.accounting)
        # R's numbers are always counted as in the paper, whatever accounting the others have.
        for counted in (budget, Budget(p, q, r)):
            for method in settings.methods:
                (of_method,) = _oriented(method, [counted], is_transposed=is_transposed)
                method.check_budget(of_method)
        return budget
    return None


def matrix_errors(
    matrix: Matrix,
    increment: torch.Tensor,
    eigenvalues: NDArray[np.float64],
    budgets: list[Budget],
    settings: Settings,
    draws: Draws,
    *,
    weights: torch.Tensor | None,
    is_transposed: bool,
    has_control: bool,
) -> tuple[MatrixError, ...]:
    """Errors of every method at every budget; the increment is overwritten."""
    if not budgets:
        return ()
    choices = draws("choices")
    total = float(eigenvalues.sum())
    methods, leading = settings.methods, eigenvalues[::-1]
    # By the name of the field, and by that of the method at each budget.
    by_field: dict[str, dict[str, list[Any]]] = {
        "error": _relative_errors(
            increment, leading, methods, budgets, total, choices, weights, is_transposed
        )
    }
    by_field["iid_error"] = {
        method.name: _independent(method, _oriented(method, budgets, is_transposed=is_transposed))
        for method in methods
    }
    singular_values = np.sqrt(eigenvalues)
    by_field["spectral_error"] = {
        method.name: [spectral_error(singular_values, method, budget) for budget in budgets]
        for method in methods
        if has_spectral_error(method)
    }
    gains = np.subtract(by_field["spectral_error"][_DCT], by_field["error"][_DCT])
    if max(gains) >= NOTICEABLE:
        by_axis = _axis_errors(increment, budgets, total, draws)
        by_field |= {field: {_DCT: errors} for field, errors in by_axis.items()}
    if has_control:
        # Shuffle in place: two matrices of the largest size may not fit into memory.
        mixed = shuffled(increment, draws("shuffle"))
        largest = max(budget.r for budget in budgets)
        svd = truncated_svd(mixed, largest, tolerance=_OF_CONTROL)
        leading = svd.s.double().square().cpu().numpy()
        # The errors of S are the same in any order.
        moved = [m for m in methods if type(m) is not Selection or m.basis != ENTRIES]
        of_shuffled = _relative_errors(
            mixed, leading, moved, budgets, total, choices, weights, is_transposed
        )
        by_field["shuffled_error"] = by_field["error"] | of_shuffled
    return tuple(
        MatrixError(
            name=matrix.name,
            tuned=matrix.tuned,
            kind=matrix.kind,
            layer=matrix.layer,
            energy=matrix.energy,
            r=budget.r,
            method=method.name,
            **{field: by[method.name][i] for field, by in by_field.items() if method.name in by},
        )
        for i, budget in enumerate(budgets)
        for method in methods
    )


def _axis_errors(
    increment: torch.Tensor, budgets: list[Budget], total: float, draws: Draws
) -> dict[str, list[float]]:
    """Errors of D with the columns, the rows and both in random order; the matrix is put back."""
    rng = draws("axes")
    orders = [torch.from_numpy(rng.permutation(side)) for side in increment.shape]
    rows, columns = (order.to(increment.device) for order in orders)

    def error() -> list[float]:
        return _relative_errors(increment, None, find_methods(_DCT), budgets, total, rng)[_DCT]

    increment.copy_(increment[:, columns])
    errors = {"inputs_shuffled_error": error()}
    increment.copy_(increment[rows])
    errors["axes_shuffled_error"] = error()
    increment.copy_(increment[:, columns.argsort()])
    errors["outputs_shuffled_error"] = error()
    increment.copy_(increment[rows.argsort()])
    return errors


def _relative_errors(
    matrix: torch.Tensor,
    eigenvalues: NDArray[np.float64] | None,
    methods: Sequence[Method],
    budgets: list[Budget],
    total: float,
    rng: np.random.Generator | None,
    weights: torch.Tensor | None = None,
    is_transposed: bool = False,
) -> dict[str, list[float]]:
    """Relative error of every method; the eigenvalues, for LoRA, must be sorted, largest first."""
    searched = [method for method in methods if type(method) is not LowRank]
    alike = [method for method in searched if _is_symmetric(method)]
    others = [method for method in searched if method not in alike]
    retained = mean_retained_energies(matrix, alike, budgets, rng)
    if others:
        if is_transposed:
            matrix, weights = matrix.T, None if weights is None else weights.T
        turned = _oriented(others[0], budgets, is_transposed=is_transposed)
        retained |= mean_retained_energies(matrix, others, turned, rng, weights=weights)
    if eigenvalues is not None:
        # They give LoRA's energies without another decomposition.
        sums = np.cumsum(eigenvalues)[[budget.r - 1 for budget in budgets]]
        retained |= {method.name: sums for method in methods if type(method) is LowRank}
    return {name: np.clip(1 - part / total, 0, 1).tolist() for name, part in retained.items()}


def _is_symmetric(method: Method) -> bool:
    """Whether a method makes no difference between outputs and inputs, and needs no weights."""
    has_no_weights = not isinstance(method, UsesWeights)
    return type(method) is LowRank or (isinstance(method, CoordinateMethod) and has_no_weights)


def _oriented(method: Method, budgets: list[Budget], *, is_transposed: bool) -> list[Budget]:
    """The budgets with p outputs and q inputs, of a matrix that is stored as (inputs, outputs)."""
    if not is_transposed or _is_symmetric(method):
        return budgets
    return [replace(budget, p=budget.q, q=budget.p) for budget in budgets]


def shuffled(increment: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Put the entries in random order, in place.

    NumPy draws the order on every device, so that a stored result is valid for any device.
    """
    entries = increment.cpu().contiguous().view(-1)
    shuffle(entries.numpy(), rng)
    return increment.copy_(entries.view(increment.shape))


def _independent(method: Method, budgets: list[Budget]) -> list[float | None]:
    """Expected errors for independent normal entries; None if only simulation can give them."""
    exact = [budget for budget in budgets if Engine.EXACT in method.engines(budget)]
    errors = checked_numbers(method, "expected_errors", exact) if exact else ()
    by_budget = dict(zip(exact, map(float, errors), strict=True))
    return [by_budget.get(budget) for budget in budgets]


def coded_errors(
    matrix: Matrix, increment: torch.Tensor, settings: Settings, draws: Draws
) -> tuple[CodedError, ...]:
    """Errors of every coder with each of its transforms; none unless bits were asked for."""
    if not settings.bits:
        return ()
    entries = increment.double().cpu().numpy()
    measured = list(measure_all(entries, settings.bits, draws("coders")))
    errors = {(method, at, bits): coded.error for method, at, bits, coded in measured}

    def gain(method: str, reference: Transform, bits: float, error: float) -> float | None:
        before = errors.get((method, reference, bits))
        return None if before is None or len(CODERS[method].transforms) == 1 else before - error

    return tuple(
        CodedError(
            name=matrix.name,
            tuned=matrix.tuned,
            method=method,
            transform=transform.value,
            bits=bits,
            stored_bits=coded.bits,
            error=coded.error,
            iid_error=_expected(method, matrix.shape, bits),
            gain=gain(method, Transform.NONE, bits, coded.error),
            excess_gain=gain(method, Transform.RANDOM, bits, coded.error),
        )
        for method, transform, bits, coded in measured
    )


@lru_cache(maxsize=4096)
def _expected(method: str, shape: tuple[int, int], bits: float) -> float | None:
    expected = CODERS[method].expected(shape, bits)
    return None if expected is None else expected.error

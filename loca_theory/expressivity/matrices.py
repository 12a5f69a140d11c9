"""Methods on a given matrix: Ŵ, the energy it retains, and one draw of the error from a dense W.

Everything here takes any real matrix, on any device; the Gaussian assumption enters nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from loca_theory._arguments import instance
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.methods import (
    CoordinateMethod,
    Method,
    find_method,
    find_methods,
)
from loca_theory.expressivity.methods.method import (
    Array,
    checked_approximation,
    checked_numbers,
)
from loca_theory.transforms.dct_paths import float32_products
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import (
    TensorLike,
    balanced,
    squared_units,
    times_power_of_two,
)


def approximate(
    matrix: TensorLike,
    method: str | Method,
    budget: Budget,
    rng: np.random.Generator | None = None,
) -> torch.Tensor:
    """The approximation Ŵ of one matrix by a method within its budget.

    The package's methods are best in Frobenius norm, given their random indices or frozen factors;
    VeRA's is a local optimum (see :class:`~loca_theory.expressivity.FrozenFactors`).

    Args:
        matrix: W, shape (p, q), a real tensor or NumPy array with finite entries, on any device.
            float16 and bfloat16 are widened to float32, integers to float64.
        method: A method or its name.
        budget: Budget for the shape (p, q).
        rng: Source of the random indices or factors; needed by the methods that have them.

    Returns:
        Ŵ, shape (p, q), a tensor of the type computed in.

    Raises:
        InvalidArgumentError: the method is unknown or approximates nothing (U, M1, M2, RD), the
            shape is not the budget's, or a random method got no ``rng``; the matrix is complex,
            sparse or of 8 bits, or has entries that are not finite.

    Source: Ŵ_R, Ŵ_F^(1), Ŵ_F^(2), Ŵ_F^(3) and Ŵ_D of the paper; DoRA and VeRA as in its appendix
    "Extended Analysis on other LoRA Variants".
    """
    found = find_method(method)
    w, exponent = _checked(matrix, [found], [budget])
    with float32_products(w.device):
        approximation = checked_approximation(found, w, budget, rng)
    return times_power_of_two(approximation, exponent)


def retained_energies(
    matrix: TensorLike,
    method: str | Method,
    budgets: Sequence[Budget],
    rng: np.random.Generator | None = None,
) -> Array:
    """Energy ‖W‖² − ‖W − Ŵ‖² that a method retains of one matrix, for several budgets at once.

    Random indices for a smaller budget are the first of those for a larger one.

    Args:
        matrix: W, as for :func:`approximate`.
        method: As for :func:`approximate`.
        budgets: Budgets for the shape (p, q).
        rng: As for :func:`approximate`.

    Returns:
        One energy per budget.

    Raises:
        InvalidArgumentError: as for :func:`approximate`, or the entries are so large or small that
            their squares do not fit float64.
    """
    found = find_method(method)
    w, exponent = _checked(matrix, [found], budgets)
    if not budgets:
        return np.zeros(0)
    with float32_products(w.device):
        energies = checked_numbers(found, "retained_energies", w.detach(), budgets, rng)
    return squared_units(energies, exponent, "matrix")


def mean_retained_energies(
    matrix: TensorLike,
    methods: Iterable[str | Method],
    budgets: Sequence[Budget],
    rng: np.random.Generator | None = None,
) -> dict[str, Array]:
    """Energies that methods retain of one matrix, averaged over their random choices.

    Methods that look at the same basis share one transform.

    Args:
        matrix: W, as for :func:`approximate`.
        methods: Methods or their names.
        budgets: Budgets for the shape (p, q).
        rng: Source of the random choices of a method whose average is not known (VeRA, and a
            user's own); it gets one draw.

    Returns:
        For each method, by name, one energy per budget.

    Raises:
        InvalidArgumentError: as for :func:`retained_energies`.
    """
    found = find_methods(methods)
    w, exponent = _checked(matrix, found, budgets)
    if not budgets:
        return {method.name: np.zeros(0) for method in found}
    w = w.detach()
    energies: dict[str, Array] = {}
    of_basis = [method for method in found if isinstance(method, CoordinateMethod)]
    with float32_products(w.device):
        for basis in dict.fromkeys(method.basis for method in of_basis):
            shared = basis.energies(w)
            # Last those that put the energies into another order.
            for method in sorted(
                (one for one in of_basis if one.basis == basis),
                key=lambda one: one.reorders,
            ):
                energies[method.name] = method.mean_sums(shared, budgets)
            del shared
        for method in found:
            if method.name not in energies:
                energies[method.name] = checked_numbers(
                    method, "mean_retained_energies", w, budgets, rng
                )
    return {
        method.name: squared_units(energies[method.name], exponent, "matrix") for method in found
    }


def dense_errors(
    method: str | Method,
    budgets: Sequence[Budget],
    matrix_rng: np.random.Generator,
    choice_rng: np.random.Generator,
    device: str = "cpu",
) -> Array:
    """One draw of a method's relative error, for every budget at once, from a dense W.

    Args:
        method: Any method that approximates a given matrix.
        budgets: Budgets of one shape.
        matrix_rng: Draws W; methods that get equal generators see the same W.
        choice_rng: Draws random indices and frozen factors.
        device: Where the linear algebra runs.

    Returns:
        ‖W − Ŵ‖²/‖W‖² for each budget. Relative to the draw's own ‖W‖²: every Ŵ scales with W, so
        the ratio is independent of ‖W‖² and its mean is E‖W − Ŵ‖²/E‖W‖², with less variance.

    Raises:
        ResourceError: the device has not enough memory.
    """
    found = find_method(method)
    p, q = budgets[0].p, budgets[0].q
    drawn = torch.from_numpy(matrix_rng.standard_normal((p, q)))
    way_out = 'use sampler="reduced", a smaller matrix or device="cpu"'
    with device_memory(f"{found.name} of a dense {p}x{q} matrix", device, way_out):
        w = drawn.to(device)
        energy = float(w.square().sum())
        return 1.0 - retained_energies(w, found, budgets, choice_rng) / energy


def _checked(
    value: TensorLike, methods: Sequence[Method], budgets: Sequence[Budget]
) -> tuple[torch.Tensor, int]:
    """The matrix by a power of two, for which nothing overflows, and the power."""
    for method in methods:
        if not method.is_approximation:
            msg = f"{method.name} is a formula, not an approximation of a given matrix"
            raise InvalidArgumentError(msg)
    matrix, exponent = balanced(value, "matrix")
    for budget in budgets:
        instance("budget", budget, Budget)
        if matrix.shape != (budget.p, budget.q):
            msg = f"matrix must be of shape ({budget.p}, {budget.q}), which the budget is for, not "
            msg += f"{tuple(matrix.shape)}"
            raise InvalidArgumentError(msg)
    return matrix, exponent

"""Apply methods to a given matrix: the approximation Ŵ, its energy, and dense draws of the error.

The functions take any real matrix on any device, and do not assume that it is Gaussian.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from loca_theory._arguments import instance
from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity.budgets import Budget
from loca_theory.expressivity.method_numbers import checked_numbers
from loca_theory.expressivity.methods import Method
from loca_theory.expressivity.methods.coordinates.coordinate_method import CoordinateMethod
from loca_theory.expressivity.methods.method import checked_approximation
from loca_theory.expressivity.methods.pretrained.weights import with_weights
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.transforms.devices import device_memory
from loca_theory.transforms.inputs import TensorLike, balanced, squared_units, times_power_of_two
from loca_theory.transforms.precision import float32_products


def approximate(
    matrix: TensorLike,
    method: str | Method,
    budget: Budget,
    rng: np.random.Generator | None = None,
    *,
    weights: TensorLike | None = None,
) -> torch.Tensor:
    """Approximate a matrix by a method within a budget.

    Given their random indices or frozen factors, the package's methods return the best
    approximation in Frobenius norm; OFT, BOFT, HRA, RoAd and PSOFT that of small steps. VeRA,
    Uni-LoRA, VB-LoRA, LoHa, HiRA, GLoRA and RandLoRA return a local optimum (see
    :mod:`~loca_theory.expressivity.methods.gradient_fits` and
    :mod:`~loca_theory.expressivity.methods.fitted`).

    Args:
        matrix: W, shape (p, q), a real tensor or NumPy array with finite entries, on any device.
            float16 and bfloat16 are widened to float32, integers to float64.
        method: A method or its name.
        budget: Budget for the shape (p, q).
        rng: Source of random indices or factors; required by the methods that use them. LoRA-XS,
            MiCA, OFT, BOFT, RoAd and PSOFT use none if the weights are known.
        weights: The pretrained weights W₀ if the matrix is the increment of a layer, of its shape.
            Methods that use W₀, such as OFT, HiRA and LoRA-XS, use random weights without them.

    Returns:
        Ŵ, shape (p, q), a tensor of the floating-point type of the computation.

    Raises:
        InvalidArgumentError: the method is unknown or only a formula, the matrix
            does not have the budget's shape, a random method got no ``rng``, or the matrix is
            complex, sparse, of an 8-bit type or not finite.

    Source: Ŵ_R, Ŵ_F^(1), Ŵ_F^(2), Ŵ_F^(3) and Ŵ_D of the paper; DoRA and VeRA as in its appendix
    "Extended Analysis on other LoRA Variants".
    """
    w, exponent = _checked(matrix, [budget])
    (used,) = _prepared([find_method(method)], weights, [budget])
    with float32_products(w.device):
        approximation = checked_approximation(used, w, budget, rng)
    return times_power_of_two(approximation, exponent)


def retained_energies(
    matrix: TensorLike,
    method: str | Method,
    budgets: Sequence[Budget],
    rng: np.random.Generator | None = None,
    *,
    weights: TensorLike | None = None,
) -> Array:
    """Energy ‖W‖² − ‖W − Ŵ‖² that a method retains of one matrix, for several budgets at once.

    Random indices for a smaller budget are the first of those for a larger one.

    Args:
        matrix: W, as for :func:`approximate`.
        method: As for :func:`approximate`.
        budgets: Budgets for the shape (p, q).
        rng: As for :func:`approximate`.
        weights: As for :func:`approximate`.

    Returns:
        One energy per budget.

    Raises:
        InvalidArgumentError: as for :func:`approximate`, or the entries are so large or small that
            their squares do not fit float64.
    """
    w, exponent = _checked(matrix, budgets)
    (used,) = _prepared([find_method(method)], weights, budgets)
    if not budgets:
        return np.zeros(0)
    with float32_products(w.device):
        energies = checked_numbers(used, "retained_energies", w.detach(), budgets, rng)
    return squared_units(energies, exponent, "matrix")


def mean_retained_energies(
    matrix: TensorLike,
    methods: Sequence[Method],
    budgets: Sequence[Budget],
    rng: np.random.Generator | None = None,
    *,
    weights: TensorLike | None = None,
) -> dict[str, Array]:
    """Energies that methods retain of one matrix, averaged over their random choices.

    Methods with the same basis share one transform.

    Returns:
        For each method, by name, one energy per budget.
    """
    w, exponent = _checked(matrix, budgets)
    used = _prepared(methods, weights, budgets)
    if not budgets:
        return {method.name: np.zeros(0) for method in used}
    w = w.detach()
    energies: dict[str, Array] = {}
    of_basis = [method for method in used if isinstance(method, CoordinateMethod)]
    with float32_products(w.device):
        for basis in dict.fromkeys(method.basis for method in of_basis):
            shared = basis.energies(w)
            same = [method for method in of_basis if method.basis == basis]
            # Methods that reorder the shared energies come last.
            for method in sorted(same, key=lambda method: method.reorders):
                energies[method.name] = method.mean_sums(shared, budgets)
            del shared
        for method in used:
            if method.name not in energies:
                values = checked_numbers(method, "mean_retained_energies", w, budgets, rng)
                energies[method.name] = values
    names = [method.name for method in used]
    return {name: squared_units(energies[name], exponent, "matrix") for name in names}


def dense_errors(
    method: Method,
    budgets: Sequence[Budget],
    matrix_rng: np.random.Generator,
    choice_rng: np.random.Generator,
    device: str = "cpu",
) -> Array:
    """Draw a dense W and compute a method's relative error ‖W − Ŵ‖²/‖W‖² for every budget.

    Every Ŵ scales with W, so this ratio is independent of ‖W‖². Its mean is E‖W − Ŵ‖²/E‖W‖², and
    its variance is smaller than that of ‖W − Ŵ‖²/E‖W‖².
    """
    p, q = budgets[0].p, budgets[0].q
    drawn = torch.from_numpy(matrix_rng.standard_normal((p, q)))
    way_out = 'use sampler="reduced", a smaller matrix or device="cpu"'
    with device_memory(f"{method.name} of a dense {p}x{q} matrix", device, way_out):
        w = drawn.to(device)
        energy = float(w.square().sum())
        return 1.0 - retained_energies(w, method, budgets, choice_rng) / energy


def _prepared(
    methods: Sequence[Method], weights: TensorLike | None, budgets: Sequence[Budget]
) -> list[Method]:
    """The methods with the pretrained weights, if these are known."""
    if weights is None:
        return list(methods)
    scaled, _ = _checked(weights, budgets, "weights")
    return [with_weights(method, scaled.detach()) for method in methods]


def _checked(
    value: TensorLike, budgets: Sequence[Budget], name: str = "matrix"
) -> tuple[torch.Tensor, int]:
    """The checked matrix, scaled by a power of two so that nothing overflows, and the exponent."""
    matrix, exponent = balanced(value, name)
    for budget in budgets:
        instance("budget", budget, Budget)
        if matrix.shape != (budget.p, budget.q):
            raise InvalidArgumentError(
                f"{name} must be of shape ({budget.p}, {budget.q}), the shape of the budget, "
                f"not {tuple(matrix.shape)}"
            )
    return matrix, exponent

"""Monte Carlo by definition: draw W, approximate it, measure the error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.expressivity.approximators import kept_energies
from loca_theory.expressivity.budgets import Budget
from loca_theory.transforms.devices import device_memory


def dense_errors(
    curve: str,
    budgets: Sequence[Budget],
    matrix_rng: np.random.Generator,
    choice_rng: np.random.Generator,
    device: str = "cpu",
) -> NDArray[np.float64]:
    """One draw of a curve's relative error, for every budget at once, from a dense W.

    Args:
        curve: Any curve that approximates a given matrix.
        budgets: Budgets of one shape.
        matrix_rng: Draws W; curves that get equal generators see the same W.
        choice_rng: Draws random places and frozen factors.
        device: Where the linear algebra runs.

    Returns:
        ‖W − Ŵ‖²/‖W‖² for each budget. Relative to the draw's own ‖W‖²: every Ŵ scales with W, so
        the ratio is independent of ‖W‖² and its mean is E‖W − Ŵ‖²/E‖W‖², with less variance.

    Raises:
        ResourceError: the device has not enough memory.
    """
    p, q = budgets[0].p, budgets[0].q
    drawn = torch.from_numpy(matrix_rng.standard_normal((p, q)))
    way_out = 'use sampler="reduced", a smaller matrix or device="cpu"'
    with device_memory(f"{curve} of a dense {p}x{q} matrix", device, way_out):
        matrix = drawn.to(device)
        total = float(matrix.square().sum())
        return 1.0 - kept_energies(matrix, curve, budgets, choice_rng) / total

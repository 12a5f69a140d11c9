"""What an adapter can reach in one layer: the best approximation, and where its training starts.

In a metric that is not the Frobenius norm, the best choice of locations is a hard problem. Here
they are those with the largest :math:`h c^2`, where c are the cosine coefficients of ΔW and h is
the diagonal of the metric; their coefficients are then fitted. In the Frobenius norm this is the
best choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from experiments.finetuning.methods import Method
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods import LinearFamily
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.expressivity.methods.subspace import Subspace
from loca_theory.transforms import dct2, idct2

# Added to the diagonal of T M Tᵀ as a fraction of its trace, against rounding errors where the
# curvature is zero.
_JITTER = 1e-12


@dataclass(frozen=True)
class Metric:
    r"""The symmetric map :math:`M[W] = G W A + \lambda W` of the p×q matrices, in float64."""

    outputs: torch.Tensor  # G, (p, p), positive semidefinite
    inputs: torch.Tensor  # A, (q, q), positive semidefinite
    damping: float = 0.0  # λ ≥ 0

    def apply(self, matrices: torch.Tensor) -> torch.Tensor:
        """M of each matrix, (..., p, q)."""
        return self.outputs @ matrices @ self.inputs + self.damping * matrices

    def energy(self, matrix: torch.Tensor) -> float:
        """⟨W, M[W]⟩ of a matrix (p, q)."""
        return float((matrix * self.apply(matrix)).sum())

    def dual_energy(self, gradient: torch.Tensor) -> float:
        """⟨g, M⁻¹[g]⟩ of a matrix (p, q), in the eigenvectors of G and A; M must be regular."""
        rows, left = torch.linalg.eigh(self.outputs)
        columns, right = torch.linalg.eigh(self.inputs)
        values = rows.clamp(min=0)[:, None] * columns.clamp(min=0) + self.damping
        return float(((left.T @ gradient @ right).square() / values).sum())

    def factor(self, atoms: torch.Tensor) -> torch.Tensor:
        """Cholesky factor of T M Tᵀ, (n, n), for orthonormal atoms (n, p, q)."""
        gram = atoms.flatten(1) @ self.apply(atoms).flatten(1).T
        gram.diagonal().add_(_JITTER * gram.trace())
        return torch.linalg.cholesky(gram)


def captured(
    gradient: torch.Tensor, atoms: torch.Tensor, factor: torch.Tensor | None = None
) -> float:
    r"""The number :math:`c(g) = (T g)^\top (T M T^\top)^{-1} (T g)` for the atoms T, (n, pq).

    Half of it is the largest decrease that the span of the atoms makes of
    :math:`\tfrac12\langle W, M[W]\rangle - \langle g, W\rangle`; with :math:`g = M[\Delta]` it is
    the energy in the metric that the best approximation of Δ retains. Without a factor, the metric
    is the Frobenius norm.
    """
    seen = atoms.flatten(1) @ gradient.flatten()
    if factor is not None:
        seen = torch.linalg.solve_triangular(factor, seen[:, None], upper=False)
    return float(seen.square().sum())


# The linear family that each adapter trains, for those whose family is fixed before training.
_FAMILIES = {"fourierft": "FourierFT", "waveft": "WaveFT-PEFT", "shira": "SHiRA", "c3a": "C3A"}


class Reach(NamedTuple):
    """What an adapter can reach in a layer of shape p×q, in a metric or in the Frobenius norm."""

    # Energy that the best approximation of ΔW (p, q) retains.
    retained: Callable[[torch.Tensor, Metric | None], float]
    # Orthonormal atoms (n, p, q) of the increments that a small first step can make, by the
    # gradient (p, q).
    tangent: Callable[[torch.Tensor, Metric | None], torch.Tensor]


def linear(atoms: torch.Tensor) -> Reach:
    """A linear family of orthonormal atoms (n, p, q) that is fixed before training."""
    return Reach(lambda increment, metric: _fitted(increment, atoms, metric), lambda *_: atoms)


def low_rank(r: int, start: torch.Tensor) -> Reach:
    """LoRA: ΔW = B A with B = 0 at first, or DoRA, which is counted as LoRA of its rank."""

    def retained(increment: torch.Tensor, metric: Metric | None) -> float:
        """The r largest squared singular values of √G ΔW √A."""
        if metric is not None:
            increment = _root(metric.outputs) @ increment @ _root(metric.inputs)
        return float(torch.linalg.svdvals(increment)[:r].square().sum())

    return Reach(retained, lambda *_: start)


def learned_locations(count: int) -> Reach:
    """Components of the DCT at any locations: the most that a search for locations can reach."""

    def atoms(values: torch.Tensor) -> torch.Tensor:
        return cosines(values.flatten().topk(count).indices, *values.shape)

    def retained(increment: torch.Tensor, metric: Metric | None) -> float:
        """With the locations of the largest h c²."""
        saliency = dct2(increment).square() * _cosine_diagonal(metric)
        return _fitted(increment, atoms(saliency), metric)

    def tangent(gradient: torch.Tensor, metric: Metric | None) -> torch.Tensor:
        """The components of the largest Z²/h, where Z is the spectrum of the gradient."""
        return atoms(dct2(gradient).square() / _cosine_diagonal(metric))

    return Reach(retained, tangent)


def cosines(indices: torch.Tensor, p: int, q: int) -> torch.Tensor:
    """The matrices (n, p, q) whose DCT is 1 at one flat index and 0 elsewhere."""
    return idct2(_units(indices, p * q).unflatten(1, (p, q)))


def family(name: str, budget: Budget, rng: np.random.Generator) -> torch.Tensor:
    """Orthonormal atoms (n, p, q) of a method that chooses them without seeing the increment."""
    method: Any = find_method(name)
    if not isinstance(method, Subspace):
        return _range(method, budget)
    p, q = budget.p, budget.q
    chosen = method.chosen(torch.zeros(p * q, dtype=torch.float64), budget, rng)
    # Several indices may select one coordinate.
    units = _units(chosen.unique(), p * q)
    return torch.stack([method.basis.matrix(unit, p, q) for unit in units])


@lru_cache(maxsize=4)
def _range(method: LinearFamily, budget: Budget) -> torch.Tensor:
    """The projections of as many random matrices as the family has dimensions span it."""
    p, q = budget.p, budget.q
    rng = np.random.default_rng(0)
    random = torch.from_numpy(rng.standard_normal((method.parameters(budget), p, q)))
    found = [method.approximate(one, budget, np.random.default_rng(0)) for one in random]
    basis = torch.linalg.qr(torch.stack(found).flatten(1).T)[0]
    return basis.T.unflatten(1, (p, q))


def first_steps(
    weight: torch.Tensor, r: int, rng: np.random.Generator, *, magnitudes: bool
) -> torch.Tensor:
    """Orthonormal atoms (n, p, q) of the first steps of LoRA or DoRA of rank r."""
    p, q = weight.shape
    drawn = torch.from_numpy(rng.uniform(-(q**-0.5), q**-0.5, (r, q)))
    rows = torch.linalg.qr(drawn.T)[0].T.expand(p, r, q)
    if magnitudes:
        own = (weight - weight @ rows[0].T @ rows[0]).unsqueeze(1)
        rows = torch.cat([rows, own / own.norm(dim=2, keepdim=True)], dim=1)
    found = torch.zeros(p, rows.shape[1], p, q, dtype=torch.float64)
    found[torch.arange(p), :, torch.arange(p)] = rows
    return found.flatten(0, 1)


def reach(method: Method, weight: torch.Tensor, r: int, rng: np.random.Generator) -> Reach:
    """What a method can reach in a layer."""
    p, q = weight.shape
    budget = Budget(p, q, r, Accounting.TRAINABLE)
    if method.kind in ("lora", "dora"):
        return low_rank(r, first_steps(weight, r, rng, magnitudes=method.kind == "dora"))
    if method.kind in _FAMILIES:
        return linear(family(_FAMILIES[method.kind], budget, rng))
    is_fixed = method.options.get("alternating") == 0 and "init_locations" not in method.options
    count = max(int(method.fraction * budget.numbers), 1)
    if is_fixed:
        return linear(cosines(torch.from_numpy(rng.permutation(p * q)[:count]), p, q))
    return learned_locations(count)


def _fitted(increment: torch.Tensor, atoms: torch.Tensor, metric: Metric | None) -> float:
    if metric is None:
        return captured(increment, atoms)
    return captured(metric.apply(increment), atoms, metric.factor(atoms))


def _units(indices: torch.Tensor, size: int) -> torch.Tensor:
    found = torch.zeros(len(indices), size, dtype=torch.float64)
    return found.scatter_(1, indices[:, None], 1.0)


def _cosine_diagonal(metric: Metric | None) -> torch.Tensor | float:
    """⟨c, M[c]⟩ of every matrix c of the DCT's basis, (p, q)."""
    if metric is None:
        return 1.0
    rows, columns = (dct2(one).diagonal() for one in (metric.outputs, metric.inputs))
    return rows[:, None] * columns + metric.damping


def _root(matrix: torch.Tensor) -> torch.Tensor:
    """The square root of a positive semidefinite matrix."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T

"""What an adapter can reach in one layer: the best approximation, and where its training starts.

In a metric that is not the Frobenius norm, the best choice of locations is a hard problem. Here
they are those with the largest :math:`h c^2`, where c are the cosine coefficients of ΔW and h is
the diagonal of the metric; their coefficients are then fitted. In the Frobenius norm this is the
best choice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from experiments.finetuning.methods import Method
from experiments.finetuning.prediction.metric import Metric, captured, projected
from loca_theory.expressivity import Accounting, Budget
from loca_theory.expressivity.methods import LinearFamily
from loca_theory.expressivity.methods.registry import find_method
from loca_theory.transforms import dct2, idct2

# The linear family that each adapter trains, for those whose family is fixed before training.
_FAMILIES = {"fourierft": "FourierFT", "waveft": "WaveFT-PEFT", "shira": "SHiRA", "c3a": "C3A"}


class Reach(ABC):
    """What an adapter can reach in a layer of shape p×q."""

    @abstractmethod
    def retained(self, increment: torch.Tensor, metric: Metric | None) -> float:
        """Energy that the best approximation of ΔW (p, q) retains."""

    @abstractmethod
    def tangent(self, gradient: torch.Tensor, metric: Metric | None) -> torch.Tensor:
        """Orthonormal atoms (n, p, q) of the increments that a small first step can make."""


@dataclass(frozen=True)
class Linear(Reach):
    """A linear family that is fixed before training."""

    atoms: torch.Tensor  # orthonormal atoms, (n, p, q)

    def retained(self, increment: torch.Tensor, metric: Metric | None) -> float:
        """By least squares."""
        return _fitted(increment, self.atoms, metric)

    def tangent(self, gradient: torch.Tensor, metric: Metric | None) -> torch.Tensor:
        """The family itself."""
        del gradient, metric
        return self.atoms


@dataclass(frozen=True)
class LowRank(Reach):
    """LoRA: ΔW = B A with B = 0 at first, or DoRA, which is counted as LoRA of its rank."""

    r: int
    start: torch.Tensor  # orthonormal atoms (n, p, q) of the first steps

    def retained(self, increment: torch.Tensor, metric: Metric | None) -> float:
        """The r largest squared singular values of √G ΔW √A."""
        if metric is not None:
            increment = _root(metric.outputs) @ increment @ _root(metric.inputs)
        return float(torch.linalg.svdvals(increment)[: self.r].square().sum())

    def tangent(self, gradient: torch.Tensor, metric: Metric | None) -> torch.Tensor:
        """All B with the initial A."""
        del gradient, metric
        return self.start


@dataclass(frozen=True)
class LearnedLocations(Reach):
    """Components of the DCT at any locations: the most that a search for locations can reach."""

    count: int

    def retained(self, increment: torch.Tensor, metric: Metric | None) -> float:
        """With the locations of the largest h c²."""
        saliency = dct2(increment).square() * _cosine_diagonal(metric)
        return _fitted(increment, self._atoms(saliency), metric)

    def tangent(self, gradient: torch.Tensor, metric: Metric | None) -> torch.Tensor:
        """The components of the largest Z²/h, where Z is the spectrum of the gradient."""
        return self._atoms(dct2(gradient).square() / _cosine_diagonal(metric))

    def _atoms(self, values: torch.Tensor) -> torch.Tensor:
        return cosines(values.flatten().topk(self.count).indices, *values.shape)


def cosines(indices: torch.Tensor, p: int, q: int) -> torch.Tensor:
    """The matrices (n, p, q) whose DCT is 1 at one flat index and 0 elsewhere."""
    return idct2(_units(indices, p * q).unflatten(1, (p, q)))


def family(name: str, budget: Budget, rng: np.random.Generator) -> torch.Tensor:
    """Orthonormal atoms (n, p, q) of a method that chooses them without seeing the increment."""
    method: Any = find_method(name)
    if isinstance(method, LinearFamily):
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
    """Orthonormal atoms (n, p, q) of the first steps of LoRA or DoRA of rank r.

    They are the matrices whose rows are combinations of the rows of A, which PEFT draws uniformly
    from ±1/√q; the magnitude of row i of DoRA adds multiples of row i of W.
    """
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
        return LowRank(r, first_steps(weight, r, rng, magnitudes=method.kind == "dora"))
    if method.kind in _FAMILIES:
        return Linear(family(_FAMILIES[method.kind], budget, rng))
    is_fixed = method.options.get("alternating") == 0 and "init_locations" not in method.options
    count = max(int(method.fraction * budget.numbers), 1)
    if is_fixed:
        return Linear(cosines(torch.from_numpy(rng.permutation(p * q)[:count]), p, q))
    return LearnedLocations(count)


def _fitted(increment: torch.Tensor, atoms: torch.Tensor, metric: Metric | None) -> float:
    if metric is None:
        return projected(increment, atoms)
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

r"""What a linear family of increments captures of a matrix, in the metric of the curvature.

The family is the span of n orthonormal atoms, the rows of T, (n, pq). In a metric
:math:`M[W] = G W A + \lambda W`, the largest decrease that the family makes of the quadratic
function :math:`\tfrac12\langle W, M[W]\rangle - \langle g, W\rangle` is half of

.. math:: c(g) = (T g)^\top (T M T^\top)^{-1} (T g),

and that of all matrices is half of :math:`\langle g, M^{-1}[g]\rangle`. With :math:`g = M[\Delta]`,
c is the energy in the metric that the best approximation of Δ retains.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

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


def captured(gradient: torch.Tensor, atoms: torch.Tensor, factor: torch.Tensor) -> float:
    """The number c(g) of the module's formula."""
    seen = atoms.flatten(1) @ gradient.flatten()
    return float(torch.linalg.solve_triangular(factor, seen[:, None], upper=False).square().sum())


def projected(matrix: torch.Tensor, atoms: torch.Tensor) -> float:
    """Energy of the projection on orthonormal atoms: c(g) in the Frobenius norm."""
    return float((atoms.flatten(1) @ matrix.flatten()).square().sum())


def effective_dimension(factor: torch.Tensor, damping: float) -> float:
    r"""Number of directions of a family that the curvature determines: tr F (F + λ)⁻¹.

    F is the curvature on the family, in orthonormal atoms:
    :math:`n - \lambda\,\mathrm{tr}\,(F + \lambda)^{-1}`.
    """
    return len(factor) - damping * float(torch.cholesky_inverse(factor).trace())

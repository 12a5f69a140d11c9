r"""Random problems of the toy experiment, in batches.

Labels are :math:`Y = W_3\,\Delta(F^*)\,W_1 X` with :math:`\Delta(F) = C^\top F D` and F* sparse.
If only F is unknown, the loss is quadratic. With n samples as the columns of X,

.. math:: L(F) = \tfrac12 \langle F - F^*, Z\rangle, \qquad
          Z = \frac{\partial L}{\partial F} = \Gamma\,(F - F^*)\,\Sigma, \qquad
          \Gamma = \tfrac{2n}{M}\, C W_3^\top W_3 C^\top, \quad
          \Sigma = \tfrac1n\, D W_1 X X^\top W_1^\top D^\top ,

where M is the divisor of the loss. Two K×K matrices per problem therefore replace the samples. The
curvature of the loss in the coefficient at one location is :math:`h = \Gamma_{ii}\Sigma_{jj}`.

The paper describes the experiment for K = 6. At other sizes the variance of the fixed weights is
multiplied by :math:`\sqrt{6/K}`. This preserves the mean curvature of the mean loss, and therefore
the effect of a learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from loca_theory.convergence.interpretations import Interpretation
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import generator
from loca_theory.transforms.matrices import dct_matrix

SAMPLES = 5000
_MOST = 4096
_PRINTED, _PRINTED_SIZE = "gaussian", 6


@dataclass(frozen=True)
class ProblemFamily:
    """A family of random problems.

    Attributes:
        size: K, from 2 to 4096.
        components: Number of non-zero coefficients of F*, from 1 to K².
        condition: Condition number of the fixed weights, at least 1 (1 for orthogonal matrices).
            Their singular values are log-spaced, and their expected Frobenius norm is the paper's.
            None for Gaussian weights, as in the paper.
    """

    size: int = 6
    components: int = 3
    condition: float | None = None

    def __post_init__(self) -> None:
        if self.size < 2:
            raise InvalidArgumentError(f"the size must be at least 2, not {self.size}")
        if self.size > _MOST:
            raise InvalidArgumentError(
                f"the size must be at most {_MOST}, not {self.size}: a problem needs six matrices"
            )
        if not 1 <= self.components <= self.size**2:
            raise InvalidArgumentError(
                f"the number of components must lie between 1 and {self.size**2} for a "
                f"{self.size}×{self.size} spectrum, not {self.components}"
            )
        if self.condition is not None and not 1 <= self.condition < np.inf:
            raise InvalidArgumentError(
                f"a condition number must be finite and at least 1, not {self.condition:g}"
            )


@dataclass(frozen=True)
class Problems:
    """A batch of P problems.

    Attributes:
        rows: Γ, (P, K, K).
        columns: Σ, (P, K, K).
        indices: True locations as flat indices of the K×K spectrum, (P, B).
        coefficients: True coefficients, (P, B).
        start: Initial locations, independent of the true ones, (P, B).
    """

    rows: torch.Tensor
    columns: torch.Tensor
    indices: torch.Tensor
    coefficients: torch.Tensor
    start: torch.Tensor

    @property
    def size(self) -> int:
        """Size K of the spectrum."""
        return self.rows.shape[-1]

    def product(self, indices: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
        """Γ F Σ, (P, K²), of a sparse F: (P, B) locations, which may repeat, and coefficients."""
        i, j = indices // self.size, indices % self.size
        # Rows replace columns, because the matrices are symmetric and rows are contiguous.
        left = _rows(self.rows, i) * coefficients[..., None]
        return (left.mT @ _rows(self.columns, j)).flatten(1)

    def curvature(self) -> torch.Tensor:
        """Curvature h of every location, (P, K²)."""
        rows, columns = (m.diagonal(dim1=1, dim2=2) for m in (self.rows, self.columns))
        return (rows[:, :, None] * columns[:, None, :]).flatten(1)

    def hessian(self, indices: torch.Tensor) -> torch.Tensor:
        """Hessian of the loss in the coefficients at (P, B) locations, (P, B, B)."""
        i, j = indices // self.size, indices % self.size
        return _block(self.rows, i) * _block(self.columns, j)


def draw(
    family: ProblemFamily,
    interpretation: Interpretation,
    seed: int,
    numbers: range,
    *,
    samples: int = SAMPLES,
) -> Problems:
    """Draw problems of a family by their numbers.

    The random draws of a problem depend on the family, the seed and its number only;
    interpretations scale the same draws.
    """
    drawn = [_draw(family, interpretation, seed, number, samples) for number in numbers]
    fields = [torch.from_numpy(np.stack(parts)) for parts in zip(*drawn, strict=True)]
    w3, gram, *of_truth = fields
    cosines = dct_matrix(family.size, dtype=torch.float64)
    first = w3 @ cosines.T
    divisors = {"mean": samples * family.size, "mean-of-samples": samples, "sum": 1}
    rows = 2 * samples / divisors[interpretation.loss] * (first.mT @ first)
    columns = cosines @ gram @ cosines.T
    return Problems(rows, columns, *of_truth)


def network(
    family: ProblemFamily,
    interpretation: Interpretation,
    seed: int,
    number: int,
    *,
    samples: int = SAMPLES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw W1 (K×K), W3 (K×K) and X (K×n) of one problem, from which :func:`draw` gets Γ and Σ."""
    kind = _PRINTED if family.condition is None else repr(float(family.condition))
    source = generator(seed, "toy", family.size, family.components, kind, number)
    w1, w3 = (_weights(source, family, interpretation) for _ in range(2))
    x = interpretation.data_standard_deviation * source.standard_normal((family.size, samples))
    return w1, w3, x


def _draw(
    family: ProblemFamily, interpretation: Interpretation, seed: int, number: int, samples: int
) -> tuple[np.ndarray, ...]:
    w1, w3, x = network(family, interpretation, seed, number, samples=samples)
    inputs = w1 @ x
    gram = inputs @ inputs.T / samples
    # A separate generator, so that these draws do not depend on the number of samples.
    source = generator(seed, "toy places", family.size, family.components, number)
    entries, count = family.size**2, family.components
    indices = np.sort(source.choice(entries, count, replace=False))
    coefficients = interpretation.weight_standard_deviation * source.standard_normal(count)
    start = source.choice(entries, count, replace=False)
    return w3, gram, indices, coefficients, start


def _weights(
    source: np.random.Generator, family: ProblemFamily, interpretation: Interpretation
) -> np.ndarray:
    size = family.size
    standard_deviation = interpretation.weight_standard_deviation * (_PRINTED_SIZE / size) ** 0.25
    left = source.standard_normal((size, size))
    if family.condition is None:
        return standard_deviation * left
    right = source.standard_normal((size, size))
    values = np.geomspace(1.0, 1.0 / family.condition, size)
    values *= standard_deviation * size / np.linalg.norm(values)
    return (_haar(left) * values) @ _haar(right).T


def _haar(gaussian: np.ndarray) -> np.ndarray:
    """A uniformly random orthogonal matrix."""
    q, r = np.linalg.qr(gaussian)
    return q * np.sign(np.diag(r))


def _rows(matrices: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Select rows: (P, K, K) and (P, B) to (P, B, K)."""
    return matrices.gather(1, indices[..., None].expand(-1, -1, matrices.shape[-1]))


def _block(matrices: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Select rows and columns: (P, K, K) and (P, B) to (P, B, B)."""
    count = indices.shape[1]
    return _rows(matrices, indices).gather(2, indices[:, None].expand(-1, count, -1))

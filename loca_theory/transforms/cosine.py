"""Orthonormal DCT-II and its inverse, differentiable, on any device.

The default path was chosen by measurement (``python -m benchmarks.transforms``):

- ``scipy`` (default on the CPU): :func:`scipy.fft.dctn`, a true real-to-real transform, with as
  many workers as torch has threads. No other library that pip installs was faster in float32
  on batches of 300x300, on 768x768 or on 4096x4096: the FFT path needs as many passes over
  memory for its twiddles as the transform itself.
- ``fft`` (default elsewhere): one real FFT between a reordering and twiddles (Makhoul, 1980).
  torch has a fast FFT on every accelerator and a fast DCT on none. On an H200 this is about
  twice as fast as CuPy's DCT.
- ``matmul`` (default elsewhere for few, small float32 matrices): products with
  :func:`dct_matrix`, which need fewer launches. They never use TF32, which leaves three correct
  digits.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms.dct_implementations import transform
from loca_theory.transforms.inputs import TensorLike, real_tensor, widened

TransformMethod = Literal["auto", "scipy", "fft", "matmul"]


def dct(x: TensorLike, *, method: TransformMethod = "auto") -> torch.Tensor:
    r"""Orthonormal DCT-II along the last dimension.

    .. math:: X_k = \sqrt{2/n}\; c_k \sum_{j=0}^{n-1} x_j \cos\frac{\pi (2j+1) k}{2n},
              \qquad c_0 = 1/\sqrt2,\; c_k = 1 \text{ for } k > 0 .

    Args:
        x: Real tensor or NumPy array of shape (..., n), n at least 1. float16 and bfloat16
            are computed in float32 and cast back.
        method: ``auto``, ``scipy`` (CPU only), ``fft`` or ``matmul``; see the module docstring.

    Returns:
        Tensor of the shape and dtype of ``x``.

    Raises:
        InvalidArgumentError: x is not a dense real floating tensor or array of 16 bits or more, or
            has no dimension or an empty last one; the method is unknown, or it is ``scipy`` and x
            is not on the CPU.

    Source: the rows of C in the paper's section "Inverse Discrete Cosine Transform-based
    Reparameterization".
    """
    return _transform(x, 1, inverse=False, method=method)


def idct(x: TensorLike, *, method: TransformMethod = "auto") -> torch.Tensor:
    """Inverse of :func:`dct` (the orthonormal DCT-III); same arguments, errors and source."""
    return _transform(x, 1, inverse=True, method=method)


def dct2(x: TensorLike, *, method: TransformMethod = "auto") -> torch.Tensor:
    r"""Orthonormal two-dimensional DCT-II, :math:`C\,x\,D^\top`, over the last two dimensions.

    C and D are the DCT matrices of orders p and q for x of shape (..., p, q). The squared
    Frobenius norm is preserved. Other arguments, errors and source as for :func:`dct`.
    """
    return _transform(x, 2, inverse=False, method=method)


def idct2(x: TensorLike, *, method: TransformMethod = "auto") -> torch.Tensor:
    r"""Inverse of :func:`dct2`, :math:`C^\top x\,D`: the map from spectrum to ΔW in LoCA.

    Arguments and errors as for :func:`dct2`. Source: the paper's inverse DCT.
    """
    return _transform(x, 2, inverse=True, method=method)


def _transform(x: TensorLike, dims: int, *, inverse: bool, method: TransformMethod) -> torch.Tensor:
    x = real_tensor(x, "x")
    if x.ndim < dims or 0 in x.shape[x.ndim - dims :]:
        raise InvalidArgumentError(
            f"the DCT needs {dims} non-empty last dimension(s), not shape {tuple(x.shape)}"
        )
    if method not in get_args(TransformMethod):
        raise InvalidArgumentError(
            f"unknown DCT method {method!r}; choose one of {', '.join(get_args(TransformMethod))}"
        )
    if method == "scipy" and x.device.type != "cpu":
        raise InvalidArgumentError(
            f"the scipy DCT runs on the CPU, not on {x.device}; choose method='fft' or 'matmul'"
        )
    y = _OrthogonalTransform.apply(widened(x), dims, inverse, method)
    return y.to(x.dtype)


class _OrthogonalTransform(torch.autograd.Function):
    """The linear map and its transpose; each is the backward pass of the other."""

    @staticmethod
    def forward(x: torch.Tensor, dims: int, inverse: bool, method: str) -> torch.Tensor:
        return transform(x, dims, inverse=inverse, method=method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:  # noqa: ARG004
        ctx.arguments = inputs[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dims, inverse, method = ctx.arguments
        gradient = _OrthogonalTransform.apply(gradients[0], dims, not inverse, method)
        return gradient, None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor) -> torch.Tensor:
        return _OrthogonalTransform.apply(tangents[0], *ctx.arguments)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[torch.Tensor, int]:
        del info  # the transform accepts any leading batch dimensions
        x, *arguments = args
        return _OrthogonalTransform.apply(x.movedim(in_dims[0] or 0, 0), *arguments), 0

"""Conversion of a caller's arguments to tensors that the mathematics can use.

:func:`as_tensor` and :func:`real_tensor` check only types, never entries: they cost about a
microsecond and no synchronisation, in training as well. :func:`balanced` checks the entries.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError

TensorLike: TypeAlias = torch.Tensor | NDArray[Any]

# Squares of entries up to this size, and sums of as many squares as fit into memory, are normal
# float32 numbers.
_MODERATE = 2.0**32
# Squares of entries beyond this power of two, or below its inverse, leave the range of float64.
_LARGEST_EXPONENT = 480


def as_tensor(value: TensorLike, name: str) -> torch.Tensor:
    """Check that a value is dense with at least 16 bits per entry, and make an array a tensor."""
    if not isinstance(value, torch.Tensor):
        value = _from_numpy(value, name)
    if value.layout is not torch.strided:
        raise InvalidArgumentError(
            f"{name} must be dense, not {value.layout}; pass {name}.to_dense()"
        )
    if value.is_floating_point() and value.dtype.itemsize < torch.float16.itemsize:
        raise InvalidArgumentError(
            f"{name} must have 16 bits per entry or more, not {value.dtype}; widen it with "
            f"{name}.float(), which is exact"
        )
    return value


def real_tensor(value: TensorLike, name: str) -> torch.Tensor:
    """Like :func:`as_tensor`, for values of a real floating type."""
    tensor = as_tensor(value, name)
    if not tensor.is_floating_point():
        cure = "pass its real part" if tensor.is_complex() else "convert it to float64"
        raise InvalidArgumentError(f"{name} must be real and floating, not {tensor.dtype}; {cure}")
    return tensor


def widened(x: torch.Tensor) -> torch.Tensor:
    """Convert float16 and bfloat16 to float32, and integers to float64; keep other types."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.float()
    return x if x.is_floating_point() or x.is_complex() else x.double()


def balanced(value: TensorLike, name: str) -> tuple[torch.Tensor, int]:
    r"""(x, e) with value = 2ᵉ x and entries of x whose squares neither overflow nor vanish.

    The scaling is exact. If the largest magnitude lies between :math:`2^{-32}` and :math:`2^{32}`,
    or all entries are 0, then e = 0 and the entries of x are those passed.
    """
    tensor = usable(value, name)
    exponent = exponent_of(*ends(tensor, name))
    return times_power_of_two(tensor, -exponent), exponent


def usable(value: TensorLike, name: str) -> torch.Tensor:
    """Return a real tensor, with narrow floats and integers widened; see :func:`balanced`."""
    tensor = as_tensor(value, name)
    return real_tensor(tensor if tensor.is_complex() else widened(tensor), name)


def ends(tensor: torch.Tensor, name: str) -> tuple[float, float]:
    """Smallest and largest entry; 0 and 0 if the tensor is empty."""
    if not tensor.numel():
        return 0.0, 0.0
    if tensor.is_meta:
        raise InvalidArgumentError(
            f"{name} has no entries in memory: it is on the meta device; load it first"
        )
    low, high = (float(end) for end in tensor.detach().aminmax())
    # If an entry is NaN, aminmax returns NaN for both.
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~tensor.isfinite()).sum())
        raise InvalidArgumentError(
            f"{name} must be finite: {bad} of {tensor.numel()} entries are NaN or infinite"
        )
    return low, high


def exponent_of(low: float, high: float) -> int:
    """The exponent e of :func:`balanced` for entries between low and high."""
    largest = max(-low, high)
    if largest == 0 or 1 / _MODERATE <= largest <= _MODERATE:
        return 0
    return math.frexp(largest)[1]


def times_power_of_two(x: torch.Tensor, exponent: int) -> torch.Tensor:
    """Return 2ᵉ x; x itself for e = 0."""
    if not exponent:
        return x
    # In two steps: the power alone may lie outside the range of the type.
    half = exponent // 2
    return x * 2.0**half * 2.0 ** (exponent - half)


def fits_squared(exponent: int) -> bool:
    """Whether the squares of entries of size 2ᵉ, and their sums, are normal float64 numbers."""
    return abs(exponent) <= _LARGEST_EXPONENT


def squared_units(energies: NDArray[np.float64], exponent: int, name: str) -> NDArray[np.float64]:
    """Multiply energies of a tensor from :func:`balanced` by 4ᵉ, to undo the scaling."""
    if not fits_squared(exponent):
        raise InvalidArgumentError(
            f"{name} has entries of about 2^{exponent}, whose squares do not fit float64; divide "
            "it by a power of two"
        )
    return np.ldexp(energies, 2 * exponent) if exponent else energies


def _from_numpy(value: Any, name: str) -> torch.Tensor:
    if not isinstance(value, np.ndarray):
        raise InvalidArgumentError(
            f"{name} must be a torch tensor or a NumPy array, not {type(value).__name__}; "
            "convert it with numpy.asarray"
        )
    # torch shares only arrays that are writable, without negative strides and in native byte order.
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    shareable = native.flags.writeable and min(native.strides, default=0) >= 0
    try:
        return torch.from_numpy(native if shareable else native.copy())
    except TypeError as error:
        raise InvalidArgumentError(
            f"{name} must hold numbers that torch has a type for, not {value.dtype}; convert it "
            "with .astype('float64')"
        ) from error

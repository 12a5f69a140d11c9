"""From what a caller passes to a tensor that the mathematics can take, or one clear refusal.

:func:`as_tensor` and :func:`real_tensor` look at types alone and never at entries: they cost about
a microsecond and no synchronisation, in training as well. :func:`balanced` looks at the entries.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from loca_theory.errors import InvalidArgumentError

TensorLike: TypeAlias = torch.Tensor | NDArray[Any]

# Squares of entries up to here, and sums of as many as fit into memory, are normal float32 numbers.
_MODERATE = 2.0**32
# Squares of entries beyond this power of two, or below its inverse, leave the range of float64.
_LARGEST_EXPONENT = 480


def as_tensor(value: TensorLike, name: str) -> torch.Tensor:
    """A dense tensor of at least 16 bits an entry: the very one passed, or a NumPy array's entries.

    Args:
        value: A tensor or a NumPy array, whose memory is shared where it can be.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: it is neither, is sparse, or of a type that torch does not compute in.
    """
    if not isinstance(value, torch.Tensor):
        value = _from_numpy(value, name)
    if value.layout is not torch.strided:
        msg = f"{name} must be dense, not {value.layout}; pass {name}.to_dense()"
        raise InvalidArgumentError(msg)
    if value.is_floating_point() and value.dtype.itemsize < torch.float16.itemsize:
        msg = f"{name} must have 16 bits an entry or more, not {value.dtype}; widen it with "
        msg += f"{name}.float(), which is exact"
        raise InvalidArgumentError(msg)
    return value


def real_tensor(value: TensorLike, name: str) -> torch.Tensor:
    """As :func:`as_tensor`, of a real floating type.

    Args:
        value: A tensor or a NumPy array.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: as for :func:`as_tensor`, or the type is complex or integer.
    """
    tensor = as_tensor(value, name)
    if not tensor.is_floating_point():
        cure = "pass its real part" if tensor.is_complex() else "convert it to float64"
        msg = f"{name} must be real and floating, not {tensor.dtype}; {cure}"
        raise InvalidArgumentError(msg)
    return tensor


def widened(x: torch.Tensor) -> torch.Tensor:
    """The same numbers in a type to compute in.

    float32 for float16 and bfloat16, float64 for integers; other types stay as they are.
    """
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.float()
    return x if x.is_floating_point() or x.is_complex() else x.double()


def balanced(value: TensorLike, name: str) -> tuple[torch.Tensor, int]:
    r"""(x, e) with value = 2ᵉ x and entries of x whose squares neither overflow nor vanish.

    The power of two is exact. e = 0, and x the very entries passed, where the largest of them lies
    between :math:`2^{-32}` and :math:`2^{32}` or all are 0.

    Args:
        value: A real tensor or NumPy array; narrow floats and integers are widened.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: as for :func:`as_tensor`, the entries are complex, or some of them are
            not finite.
    """
    tensor = usable(value, name)
    exponent = exponent_of(*ends(tensor, name))
    return times_power_of_two(tensor, -exponent), exponent


def usable(value: TensorLike, name: str) -> torch.Tensor:
    """A real tensor, narrow floats and integers widened; see :func:`balanced`.

    Args:
        value: A real tensor or NumPy array.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: as for :func:`as_tensor`, or the entries are complex.
    """
    tensor = as_tensor(value, name)
    return real_tensor(tensor if tensor.is_complex() else widened(tensor), name)


def ends(tensor: torch.Tensor, name: str) -> tuple[float, float]:
    """Smallest and largest entry; 0 and 0 of none.

    Args:
        tensor: Real and floating.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: some of its entries are not finite, or it has none in memory.
    """
    if not tensor.numel():
        return 0.0, 0.0
    if tensor.is_meta:
        msg = f"{name} has no entries in memory: it is on the meta device; load it first"
        raise InvalidArgumentError(msg)
    low, high = (float(end) for end in tensor.detach().aminmax())
    # NaN is both ends where it occurs at all.
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = int((~tensor.isfinite()).sum())
        msg = f"{name} must be finite: {bad} of {tensor.numel()} entries are NaN or infinite"
        raise InvalidArgumentError(msg)
    return low, high


def exponent_of(low: float, high: float) -> int:
    """The power e of two of :func:`balanced`, of entries between low and high."""
    largest = max(-low, high)
    if largest == 0 or 1 / _MODERATE <= largest <= _MODERATE:
        return 0
    return math.frexp(largest)[1]


def times_power_of_two(x: torch.Tensor, exponent: int) -> torch.Tensor:
    """2ᵉ x; x itself for e = 0."""
    if not exponent:
        return x
    # In two steps: the power alone may lie outside the range of the type.
    half = exponent // 2
    return x * 2.0**half * 2.0 ** (exponent - half)


def fits_squared(exponent: int) -> bool:
    """Whether the squares of entries of size 2ᵉ, and their sums, are normal float64 numbers."""
    return abs(exponent) <= _LARGEST_EXPONENT


def squared_units(energies: NDArray[np.float64], exponent: int, name: str) -> NDArray[np.float64]:
    """4ᵉ times energies of what :func:`balanced` returned.

    Args:
        energies: Sums of squares.
        exponent: e.
        name: What the caller's argument is called.

    Raises:
        InvalidArgumentError: they do not fit float64.
    """
    if not fits_squared(exponent):
        msg = f"{name} has entries of about 2^{exponent}, whose squares do not fit float64; divide "
        msg += "it by a power of two"
        raise InvalidArgumentError(msg)
    return np.ldexp(energies, 2 * exponent) if exponent else energies


def _from_numpy(value: Any, name: str) -> torch.Tensor:
    if not isinstance(value, np.ndarray):
        msg = f"{name} must be a torch tensor or a NumPy array, not {type(value).__name__}; "
        msg += "convert it with numpy.asarray"
        raise InvalidArgumentError(msg)
    # torch shares only what is writable, runs forwards and has the machine's byte order.
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    shareable = native.flags.writeable and min(native.strides, default=0) >= 0
    try:
        return torch.from_numpy(native if shareable else native.copy())
    except TypeError as error:
        msg = f"{name} must hold numbers that torch has a type for, not {value.dtype}; convert it "
        msg += "with .astype('float64')"
        raise InvalidArgumentError(msg) from error

"""Choose the fastest implementation of ΔW from the measured costs of its parts.

The constants lie between the times on two machines (two cores with AVX-512, by Intel and by AMD).
The choice depends only on their ratios, which vary less between processors than the times do: a
transform costs half to two times as much, in products, as is assumed here.

On a GPU, a step of one layer takes as long as a processor needs to launch its kernels, unless the
matrix is large. On an H200, ``materialised`` takes 50 to 70 % of the time of ``implicit`` at
768x768, for every dtype, B and number of tokens measured, but ΔW stays in memory until the
backward pass. At 4096x4096 and 512 tokens it takes 77 % of the time and 2.9 times the memory. For
more tokens in bfloat16, a choice follows from counts alone and is not measured there: the products
are then in bfloat16, and a matrix of pq entries is transformed along both sides, where the tokens
have T(p + q) entries to transform along one.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch

Implementation = Literal["auto", "materialised", "implicit"]
IMPLEMENTATIONS: tuple[str, ...] = get_args(Implementation)

# Nanoseconds on the CPU: an entry of a transform along one dimension, along two, and along two if
# the matrix does not fit in the cache; a multiply-add of a dense product, of a sparse product and
# of a sampled product; an entry that is read, added and written.
_ROWS, _PLANE, _LARGE_PLANE = 1.8, 2.6, 5.0
_DENSE, _SPARSE, _SAMPLED = 9e-3, 0.05, 0.08
_ENTRY = 0.3
_LARGE = 1 << 22
# On a GPU, ΔW with up to this many entries is formed, or with twice as many if W + ΔW replaces W.
_FORMED_UP_TO = 1 << 21
# Of a product in half precision, as a fraction of one in float32, on a CPU that has units for it.
_HALF = 0.5
# Whether this CPU has such units, by torch's own tests.
_FAST_ON_CPU = any(
    getattr(torch.cpu, name, bool)()
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
)


def product_dtype(x: torch.Tensor, working: torch.dtype) -> torch.dtype:
    """The dtype in which ΔW is applied: bfloat16 where x has it and products in it are fast.

    ΔW itself is formed in ``working``, float32 or float64, and rounded once. Autocast counts as the
    dtype of x. A CPU without units for bfloat16 applies ΔW in ``working``, too; so does any device
    for float16, below whose smallest numbers the first steps of training lie.
    """
    kind, dtype = x.device.type, x.dtype
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind) if dtype == torch.float32 else dtype
    is_fast = dtype == torch.bfloat16 and (kind != "cpu" or _FAST_ON_CPU)
    return dtype if is_fast and working == torch.float32 else working


def fastest(
    shape: tuple[int, int],
    components: int,
    tokens: int,
    *,
    trains: bool,
    foldable: bool,
    is_half: bool,
    device: torch.device,
) -> Literal["materialised", "implicit"]:
    """The implementation that is expected to need the least time for one step.

    It is ``foldable`` if W + ΔW may replace W, which saves the products with ΔW, and ``is_half`` if
    these are in half precision.
    """
    entries, across = shape[0] * shape[1], tokens * sum(shape)
    if device.type != "cpu":
        is_small = entries <= _FORMED_UP_TO * (2 if foldable else 1)
        is_formed = is_small or _products_are_cheap(shape, tokens, is_half=is_half)
        return "materialised" if is_formed else "implicit"
    passes = 2 if trains else 1
    implicit = passes * (_ROWS * across + _SPARSE * components * tokens)
    formed = _ENTRY * entries + _transform(shape, components)
    if trains:
        # The implicit implementation has the spectra of the tokens from the product.
        implicit += _SAMPLED * components * tokens
        sampled = _sampling(shape, tokens, components)
        formed += min(sampled, _through_product(shape, tokens, components))
    if not foldable:
        formed += passes * _DENSE * entries * tokens * (_HALF if is_half else 1.0)
    return "materialised" if formed < implicit else "implicit"


def sampling_pays(
    shape: tuple[int, int], tokens: int, samples: int, *, is_half: bool, device: torch.device
) -> bool:
    """Whether single entries of Z = ĝ x̂ᵀ are cheaper to compute than the transform of gᵀx.

    That product is in half precision if ``is_half``.
    """
    if device.type != "cpu":
        is_large = shape[0] * shape[1] > _FORMED_UP_TO
        return is_large and not _products_are_cheap(shape, tokens, is_half=is_half)
    return _sampling(shape, tokens, samples) < _through_product(shape, tokens, samples)


def _products_are_cheap(shape: tuple[int, int], tokens: int, *, is_half: bool) -> bool:
    """Whether a GPU transforms fewer entries for the matrix, along two sides, than for the tokens.

    In half precision the products of the matrix with the tokens are a small part of that.
    """
    return is_half and 2 * shape[0] * shape[1] <= tokens * sum(shape)


def one_sided_pays(shape: tuple[int, int], samples: int, device: torch.device) -> bool:
    """Whether a sparse product with the smaller DCT matrix is cheaper than a transform."""
    return device.type == "cpu" and _one_sided(shape, samples) < _two_sided(shape)


def _sampling(shape: tuple[int, int], tokens: int, samples: int) -> float:
    return _ROWS * tokens * sum(shape) + _SAMPLED * samples * tokens


def _through_product(shape: tuple[int, int], tokens: int, samples: int) -> float:
    return _DENSE * tokens * shape[0] * shape[1] + _transform(shape, samples)


def _transform(shape: tuple[int, int], samples: int) -> float:
    return min(_one_sided(shape, samples), _two_sided(shape))


def _one_sided(shape: tuple[int, int], samples: int) -> float:
    if min(shape) ** 2 >= _LARGE:  # all layers share the DCT matrix, but it would be a burden
        return math.inf
    return _ROWS * shape[0] * shape[1] + _SAMPLED * samples * min(shape)


def _two_sided(shape: tuple[int, int]) -> float:
    entries = shape[0] * shape[1]
    return (_PLANE if entries < _LARGE else _LARGE_PLANE) * entries

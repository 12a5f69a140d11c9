"""Locations of components in a p×q spectrum: round, separate and check them."""

from __future__ import annotations

import numpy as np
import torch

# With fewer locations per component than this, the free locations are listed. Otherwise locations
# are drawn until enough free ones are found, because most are free.
_LISTED_BELOW = 8


def extent(shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """(p − 1, q − 1), the factors from [0, 1] to locations."""
    # Created on the device: a copy from the CPU, also of one number, would wait in every step.
    sides = torch.full((2,), float(shape[0] - 1), device=device, dtype=torch.float32)
    sides[1:].fill_(shape[1] - 1)
    return sides


def continuous(
    indices: torch.Tensor, shape: tuple[int, int], dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Convert locations to numbers in [0, 1]; 0 along a side of length 1."""
    return indices.to(dtype) / extent(shape, indices.device).clamp(min=1)


def rounded(locations: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """Round numbers in [0, 1] to the nearest locations, halves to even."""
    return torch.round(locations * extent(shape, locations.device)).long()


def spread_out(
    indices: torch.Tensor, coefficients: torch.Tensor, shape: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Separate components that share a location, without changing the spectrum.

    The first component at each location gets the sum of the coefficients. The others move to random
    free locations and get coefficient zero.

    Returns:
        Locations and coefficients.
    """
    p, q = shape
    flat = indices[:, 0] * q + indices[:, 1]
    unique, positions = torch.unique(flat, return_inverse=True)
    components = torch.arange(len(flat), device=flat.device)
    first = torch.full_like(unique, len(flat)).scatter_reduce(0, positions, components, "amin")
    is_first = first[positions] == components
    sums = coefficients.new_zeros(len(unique)).index_add(0, positions, coefficients)
    flat[~is_first] = _free(unique, len(flat) - len(unique), p * q).to(flat.device)
    return torch.stack([flat // q, flat % q], dim=1), torch.where(is_first, sums[positions], 0)


def _free(taken: torch.Tensor, count: int, total: int) -> torch.Tensor:
    generator = np.random.default_rng(count)
    occupied = taken.cpu().numpy()
    if total < _LISTED_BELOW * (occupied.size + count):
        free = np.setdiff1d(np.arange(total), occupied)
        return torch.from_numpy(generator.choice(free, count, replace=False))
    chosen = np.empty(0, dtype=np.int64)
    while chosen.size < count:
        guess = generator.integers(total, size=2 * count)
        chosen = np.union1d(chosen, np.setdiff1d(guess, occupied))
    return torch.from_numpy(generator.permutation(chosen)[:count])


def mistake(
    saved: dict[str, torch.Tensor | None], shape: tuple[int, int], n_components: int
) -> str | None:
    """Describe what is wrong with a saved spectrum; None if nothing is.

    Args:
        saved: Its ``coefficients``, ``indices``, ``shape`` and ``offset``, or None.
        shape: (p, q) of the layer it is to be loaded into.
        n_components: B of that layer.
    """
    p, q = shape
    indices, a = saved["indices"], saved["coefficients"]
    if saved["shape"] is not None and tuple(saved["shape"].tolist()) != shape:
        theirs = "×".join(map(str, saved["shape"].tolist()))
        msg = f"the checkpoint is for a {theirs} layer, this one is {p}×{q}; "
        return msg + "load it into the base model it was trained on"
    if a is not None and a.shape != (n_components,):
        msg = f"the checkpoint has {a.numel()} components, this layer has {n_components}; "
        return msg + "load it with the configuration it was saved with"
    if indices is None:
        return None
    if indices.shape != (n_components, 2) or indices.is_floating_point():
        have = f"{indices.dtype} of shape {tuple(indices.shape)}"
        return f"indices must be integers of shape ({n_components}, 2), not {have}"
    if bool(((indices < 0) | (indices >= indices.new_tensor(shape))).any()):
        return f"the checkpoint has locations outside {p}×{q}"
    for name in ("coefficients", "offset"):
        values = saved[name]
        if values is not None and not bool(torch.isfinite(values).all()):
            return f"the checkpoint has values of {name} that are not finite"
    return None

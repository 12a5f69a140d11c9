"""Theory beyond the paper: where the location gradient vanishes, and what coherence guarantees."""

from __future__ import annotations

from itertools import combinations
from math import comb

import torch

from loca_theory.claims.checks.convergence import location_gradient_of, search_of
from loca_theory.claims.estimates import Returned, Rng, Tier
from loca_theory.convergence.interpretations import Interpretation
from loca_theory.convergence.problems import Problems
from loca_theory.convergence.simulation import advance
from loca_theory.convergence.state import Rates, State

_STEPS = 200
# Gradients of order 1 are exact to 1e-15.
_ROUNDING = 1e-12


def no_motion(*, rng: Rng, search: str, size: int, components: int) -> Returned:
    """Every pair of true and initial locations, with orthogonal weights and isotropic data.

    The true coefficients are random. The coefficients start at 0.

    Args:
        search: Name of a search by differences; ``central`` is the paper's.
        size: K.
        components: B; all sets of B locations are enumerated.

    Returns:
        Among the problems in which no two true locations are neighbours: the number in which a
        component moved, and the fraction that was recovered times the number of sets of locations.
        Last, the same product for the problems with neighbours.
    """
    true, start = _all_pairs(size, components)
    eye = torch.eye(size, dtype=torch.float64).expand(len(true), -1, -1)
    coefficients = torch.from_numpy(rng.standard_normal(true.shape))
    problems = Problems(eye, eye, true, coefficients, start)
    training, _ = search_of(problems, Interpretation(), search)
    state = training.state
    for _ in advance(training, _STEPS, _STEPS):
        pass
    moved = (state.indices != start).any(1)
    recovered = (state.indices.sort(dim=1).values == true).all(1)
    apart = ~_neighbours(true, true, size).any(2).any(1)
    names = {"recovered over chance": apart, "recovered over chance, neighbours": ~apart}
    sets = comb(size**2, components)
    parts = {name: sets * float(recovered[group].double().mean()) for name, group in names.items()}
    note = f"{len(true)} problems, of which {int((~apart).sum())} have true neighbours."
    return {"problems in which a component moved": float(moved[apart].sum()), **parts}, note


def finished(*, rng: Rng, size: int, components: int, coherence: float = 0.0) -> Returned:
    """Components whose location gradient should be zero but is not, with fitted coefficients.

    The problems are those of :func:`no_motion`, except that Γ and Σ have random positive diagonals.
    According to the theorem, the gradient by central differences is zero for every component,
    unless it is at a true location and a neighbour of a true location without a component.

    Args:
        size: K.
        components: B; all sets of B locations are enumerated.
        coherence: Largest coherence of Γ and Σ; the theorem is about 0.

    Returns:
        The number of components whose gradient is not zero although the theorem says that it is.
    """
    true, start = _all_pairs(size, components)
    matrices = []
    for _ in range(2):
        scale = torch.from_numpy(rng.uniform(0.5, 2.0, (len(true), size)))
        signs = _signs(rng, len(true), size, coherence)
        matrices.append(scale[:, :, None] * signs * scale[:, None])
    coefficients = torch.from_numpy(rng.standard_normal(true.shape))
    problems = Problems(matrices[0], matrices[1], true, coefficients, start)
    state = State(problems, Interpretation(), Rates())
    state.solve(components)
    moves = location_gradient_of(state).abs().amax(2) > _ROUNDING
    same = start[:, :, None] == true[:, None]
    missing = ~same.any(1)
    may_move = same.any(2) & (_neighbours(start, true, size) & missing[:, None]).any(2)
    note = f"{start.numel()} components; of {int(may_move.sum())} that may move, "
    note += f"{int((moves & may_move).sum())} do."
    return float((moves & ~may_move).sum()), note


def coherent(
    *, tier: Tier, rng: Rng, search: str, turns: int, coherence: float, size: int, components: int
) -> Returned:
    """Problems that a search with fitted coefficients does not recover.

    The matrices Γ and Σ have unit diagonals; their other entries are of absolute value
    ``coherence`` with random signs, so that this is the coherence of the Hessian.

    Args:
        tier: 500, 2000 or 20,000 problems.
        search: ``cyclic-pursuit`` or ``reselect``.
        turns: Number of moves; before each, all coefficients are fitted.
        coherence: μ, below 1/(K − 1).
        size: K.
        components: B.
    """
    count = tier.scaled(500, 2000, 20_000)
    matrices = [_signs(rng, count, size, coherence) for _ in range(2)]
    order = torch.from_numpy(rng.random((2, count, size**2))).argsort(dim=2)
    true, start = order[0, :, :components].sort(dim=1).values, order[1, :, :components]
    # Coefficients of very different sizes are the hard case.
    values = rng.choice([-1.0, 1.0], true.shape) * 10.0 ** rng.uniform(-3, 0, true.shape)
    problems = Problems(matrices[0], matrices[1], true, torch.from_numpy(values), start)
    training, _ = search_of(problems, Interpretation(), search)
    state = training.state
    for turn in range(turns):
        state.solve(components)
        training.move(turn / turns)
    is_wrong = (state.indices.sort(dim=1).values != true).any(1)
    return float(is_wrong.sum()), f"{count} problems."


def _all_pairs(size: int, components: int) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs of a set of true locations and a set of initial ones."""
    sets = torch.tensor(list(combinations(range(size**2), components)))
    return sets.repeat_interleave(len(sets), dim=0), sets.repeat(len(sets), 1)


def _neighbours(first: torch.Tensor, second: torch.Tensor, size: int) -> torch.Tensor:
    """Whether locations (P, A) and (P, B) are neighbours, (P, A, B)."""
    rows = first[:, :, None] // size - second[:, None] // size
    columns = first[:, :, None] % size - second[:, None] % size
    return rows.abs() + columns.abs() == 1


def _signs(rng: Rng, count: int, size: int, coherence: float) -> torch.Tensor:
    """Symmetric matrices of diagonal 1 and other entries ±coherence, (count, K, K)."""
    signs = torch.from_numpy(rng.choice([-coherence, coherence], (count, size, size))).triu(1)
    return signs + signs.mT + torch.eye(size, dtype=torch.float64)

"""Theory beyond the paper: where the location gradient vanishes, and what coherence guarantees."""

from __future__ import annotations

from itertools import combinations

import torch

from loca_theory.claims.measurement import Estimate, Measurement, Setting
from loca_theory.convergence import Interpretation, Problems, Rates
from loca_theory.convergence.searches import find_search
from loca_theory.convergence.state import State

_STEPS = 200


def no_motion(setting: Setting, *, search: str, size: int, components: int) -> Measurement:
    """Every pair of true and initial locations, with orthogonal weights and isotropic data.

    The true coefficients are random. The coefficients start at 0.

    Args:
        setting: Random generator.
        search: Name of a search by differences; ``central`` is the paper's.
        size: K.
        components: B; all sets of B locations are enumerated.

    Returns:
        Among the problems in which no two true locations are neighbours: the number in which a
        component moved, and the fraction that was recovered times the number of sets of locations.
        Last, the same product for the problems with neighbours.
    """
    sets = torch.tensor(list(combinations(range(size**2), components)))
    true = sets.repeat_interleave(len(sets), dim=0)
    start = sets.repeat(len(sets), 1)
    eye = torch.eye(size, dtype=torch.float64).expand(len(true), -1, -1)
    coefficients = torch.from_numpy(setting.rng.standard_normal(true.shape))
    state = State(Problems(eye, eye, true, coefficients, start), Interpretation(), Rates())
    found = find_search(search).make(state, _no_noise)
    for step in range(_STEPS):
        if found.moves_at(step):
            found.move(step / _STEPS)
        else:
            state.descend()
    moved = (state.indices != start).any(1)
    recovered = (state.indices.sort(dim=1).values == true).all(1)
    i, j = true // size, true % size
    distance = (i[:, :, None] - i[:, None]).abs() + (j[:, :, None] - j[:, None]).abs()
    apart = ~(distance == 1).any(2).any(1)
    among = [len(sets) * float(recovered[group].double().mean()) for group in (apart, ~apart)]
    return Measurement.of(
        [
            Estimate("problems in which a component moved", float(moved[apart].sum())),
            Estimate("recovered over chance", among[0]),
            Estimate("recovered over chance, neighbours", among[1]),
        ],
        f"{len(true)} problems, of which {int((~apart).sum())} have true neighbours.",
    )


def coherent(setting: Setting, *, coherence: float, size: int, components: int) -> Measurement:
    """Problems that cyclic reselection with fitted coefficients does not recover in one cycle.

    The matrices Γ and Σ have unit diagonals; their other entries are of absolute value
    ``coherence`` with random signs, so that this is the coherence of the Hessian.

    Args:
        setting: Tier (500, 2000 or 20,000 problems) and random generator.
        coherence: μ, below 1/(K − 1).
        size: K.
        components: B.
    """
    count, rng = setting.scaled(500, 2000, 20_000), setting.rng
    matrices = []
    for _ in range(2):
        signs = torch.from_numpy(rng.choice([-coherence, coherence], (count, size, size))).triu(1)
        matrices.append(signs + signs.mT + torch.eye(size, dtype=torch.float64))
    order = torch.from_numpy(rng.random((2, count, size**2))).argsort(dim=2)
    true, start = order[0, :, :components].sort(dim=1).values, order[1, :, :components]
    # Coefficients of very different sizes are the hard case.
    coefficients = torch.from_numpy(
        rng.choice([-1.0, 1.0], true.shape) * 10.0 ** rng.uniform(-3, 0, true.shape)
    )
    problems = Problems(matrices[0], matrices[1], true, coefficients, start)
    state = State(problems, Interpretation(), Rates())
    search = find_search("cyclic-pursuit").make(state, _no_noise)
    for turn in range(components):
        state.solve(components)
        search.move(turn / components)
    missed = (state.indices.sort(dim=1).values != true).any(1)
    return Measurement.exact(float(missed.sum()), f"{count} problems.")


def _no_noise(count: int) -> torch.Tensor:
    msg = f"a search without noise asked for {count} numbers"
    raise AssertionError(msg)

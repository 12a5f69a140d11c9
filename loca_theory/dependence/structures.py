r"""Random matrices W with dependent or unequal entries, set by one parameter.

============================= ========== ==================================================
structure                     parameter  law of W
============================= ========== ==================================================
``shared-mean``               rho        Σ = I + ρ 11ᵀ
``equicorrelated``            rho        Σ = (1−ρ) I + ρ 11ᵀ (unit variances)
``row-equicorrelated``        rho        independent rows with covariance (1−ρ) I + ρ 11ᵀ
``ar1``                       rho        Σ = A_p(ρ) ⊗ A_q(ρ), A(ρ)_ij = ρ^|i−j|
``blocks``                    rho        Σ = E_p(ρ) ⊗ E_q(ρ), exchangeable within blocks
``scaled``                    exponent   Σ = D_p ⊗ D_q, D diagonal with D_ii ∝ i^{-exponent}
``spiked``                    fraction   Z + θ (u_1 v_1ᵀ + u_2 v_2ᵀ + …), random directions
``power-law``                 exponent   Z Λ^{1/2} Qᵀ, λ_j ∝ j^{-exponent}, Q random orthogonal
============================= ========== ==================================================

Σ is the covariance of all pq entries, 1 is a vector of ones, and Z is a p×q matrix of independent
N(0, 1) entries. The u_k and the v_k are orthonormal. E(ρ) is block diagonal, with (1−ρ) I + ρ 11ᵀ
in every block; D_p and D_q have mean 1. The paper's appendix prints the formula of ``shared-mean``,
but its text describes ``equicorrelated``.

Four structures are separable: Σ = A ⊗ B with A between rows and B between columns, that is
:math:`W = A^{1/2} Z B^{1/2}`. They are ``row-equicorrelated`` (A = I), ``ar1``, ``blocks`` and
``scaled``; :mod:`loca_theory.dependence.closed_forms` gives the errors of selections under them.

Source: the paper's appendix on non-i.i.d. effects (shared-mean, equicorrelated); T. W. Anderson, An
Introduction to Multivariate Statistical Analysis, 3rd ed., 2003 (row-equicorrelated); R. J. Martin,
Biometrika 66 (1979) (ar1); D. F. Votaw, Ann. Math. Stat. 19 (1948) (blocks); T. Dettmers et al.,
NeurIPS 35 (2022) (scaled); I. M. Johnstone, Ann. Stat. 29 (2001) (spiked); C. H. Martin and M. W.
Mahoney, J. Mach. Learn. Res. 22 (2021) (power-law).
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.dependence import maps
from loca_theory.dependence.structure import (
    Family,
    Structure,
    ar1,
    blocks,
    of_normals,
    spiked,
)
from loca_theory.errors import InvalidArgumentError


def _power_law(p: int, q: int, rng: np.random.Generator) -> Family:
    z = rng.standard_normal((p, q))
    rotation = maps.directions(q, q, rng).T
    return lambda exponent: (z * np.sqrt(maps.power_law_variances(q, exponent))) @ rotation


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (
        Structure(
            "shared-mean", "rho",
            "all entries share a random mean of variance ρ, as the appendix prints: Σ = I + ρ 11ᵀ",
            lambda p, q: (-1 / (p * q), np.inf), of_normals(maps.shared_mean),
            energy=lambda p, q, rho: (1 + rho) * p * q,
        ),
        Structure(
            "equicorrelated", "rho",
            "all pairs of entries have correlation ρ, as the appendix's text says",
            lambda p, q: (-1 / max(p * q - 1, 1), 1.0), of_normals(maps.equicorrelated),
        ),
        Structure(
            "row-equicorrelated", "rho", "independent rows, correlation ρ within each",
            lambda p, q: (-1 / max(q - 1, 1), 1.0),
            of_normals(lambda z, rho: maps.exchangeable(z, rho, z.shape[1], 1)),
            lambda p, q, rho: (np.eye(p), maps.exchangeable_covariance(q, rho, q)),
        ),
        ar1(),
        blocks(),
        Structure(
            "scaled", "exponent",
            "independent entries whose variances decay along rows and columns",
            lambda p, q: (0.0, 10.0), of_normals(maps.scaled),
            lambda p, q, exponent: (
                np.diag(maps.power_law_variances(p, exponent)),
                np.diag(maps.power_law_variances(q, exponent)),
            ),
        ),
        spiked(),
        Structure(
            "power-law", "exponent",
            "column covariance with eigenvalues j^(−exponent), random directions",
            lambda p, q: (0.0, 10.0), _power_law,
        ),
    )
}  # fmt: skip


# The structures that have an argument beside the parameter, and the type of the argument.
_MAKERS: dict[str, tuple[Callable[[Any], Structure], type]] = {
    "ar1": (ar1, float), "blocks": (blocks, int), "spiked": (spiked, int)
}  # fmt: skip


def find_structures(given: str | Structure | Iterable[str | Structure]) -> tuple[Structure, ...]:
    """Find structures by name; ``spiked:3`` is ``spiked(3)``. A structure stands for itself."""
    found = tuple(map(_find_structure, _arguments.as_tuple(given)))
    names = [structure.name for structure in found]
    if not names or len(set(names)) < len(names):
        msg = "structures must list at least one name and no name twice, not "
        raise InvalidArgumentError(msg + (", ".join(names) or "none"))
    return found


def _by_name(structure: Structure) -> tuple[Any, ...]:
    option = "" if structure.option is None else f":{structure.option}"
    return _find_structure, (structure.name + option,)


# A structure travels to workers by name and option, because closures cannot be pickled.
copyreg.pickle(Structure, _by_name)


def _find_structure(given: str | Structure) -> Structure:
    if isinstance(given, Structure):
        return given
    name, _, option = given.partition(":") if isinstance(given, str) else (given, "", "")
    structure = find("structure", name, STRUCTURES)
    if not option:
        return structure
    if name not in _MAKERS:
        msg = f"structures: {name} has no argument; write {name}, not {given}"
        raise InvalidArgumentError(msg)
    make, kind = _MAKERS[name]
    try:
        value = kind(option)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        msg = f"structures: {name} takes {what} after its colon, not {option!r}"
        raise InvalidArgumentError(msg) from None
    return make(value)

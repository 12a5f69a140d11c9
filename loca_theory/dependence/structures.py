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

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loca_theory import _arguments
from loca_theory._lookup import definition, find, named_object
from loca_theory._types import Array
from loca_theory.dependence import maps
from loca_theory.dependence.structure import DrawFamily, OfNormals, Structure, ar1, blocks, spiked
from loca_theory.errors import InvalidArgumentError

PARAMETERS = ("rho", "fraction", "exponent")
"""The parameters that a structure can have."""


@dataclass(frozen=True)
class _SharedMean(OfNormals):
    name, parameter = "shared-mean", "rho"
    title = "all entries share a random mean of variance ρ, as the appendix prints: Σ = I + ρ 11ᵀ"

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return -1 / (p * q), np.inf

    def matrix(self, z: Array, value: float) -> Array:
        # 11ᵀ/n projects onto the mean; I + ρ 11ᵀ multiplies the variance of the mean by 1 + nρ.
        return z + (np.sqrt(1 + z.size * value) - 1) * z.mean()

    def energy(self, p: int, q: int, value: float) -> float:
        return (1 + value) * p * q


@dataclass(frozen=True)
class _Equicorrelated(OfNormals):
    name, parameter = "equicorrelated", "rho"
    title = "all pairs of entries have correlation ρ, as the appendix's text says"

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return -1 / max(p * q - 1, 1), 1.0

    def matrix(self, z: Array, value: float) -> Array:
        mean = z.mean()
        return np.sqrt(1 - value) * (z - mean) + np.sqrt(1 + (z.size - 1) * value) * mean


@dataclass(frozen=True)
class _RowEquicorrelated(OfNormals):
    name, parameter = "row-equicorrelated", "rho"
    title = "independent rows, correlation ρ within each"

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return -1 / max(q - 1, 1), 1.0

    def matrix(self, z: Array, value: float) -> Array:
        return maps.exchangeable(z, value, z.shape[1], 1)

    def factors(self, p: int, q: int, value: float) -> tuple[Array, Array]:
        return np.eye(p), maps.exchangeable_covariance(q, value, q)


class _Decaying(Structure):
    parameter = "exponent"

    def bounds(self, p: int, q: int) -> tuple[float, float]:
        return 0.0, 10.0


@dataclass(frozen=True)
class _Scaled(_Decaying, OfNormals):
    name = "scaled"
    title = "independent entries whose variances decay along rows and columns"

    def matrix(self, z: Array, value: float) -> Array:
        rows, columns = (maps.power_law_variances(n, value) for n in z.shape)
        return np.sqrt(rows)[:, None] * z * np.sqrt(columns)

    def factors(self, p: int, q: int, value: float) -> tuple[Array, Array]:
        variances = maps.power_law_variances
        return np.diag(variances(p, value)), np.diag(variances(q, value))


@dataclass(frozen=True)
class _PowerLaw(_Decaying):
    name = "power-law"
    title = "column covariance with eigenvalues j^(−exponent), random directions"

    def family(self, p: int, q: int, rng: np.random.Generator) -> DrawFamily:
        z = rng.standard_normal((p, q))
        rotation = maps.directions(q, q, rng).T
        return lambda exponent: (z * np.sqrt(maps.power_law_variances(q, exponent))) @ rotation


STRUCTURES: dict[str, Structure] = {
    structure.name: structure
    for structure in (
        *(_SharedMean(), _Equicorrelated(), _RowEquicorrelated()),
        *(ar1(), blocks(), _Scaled(), spiked(), _PowerLaw()),
    )
}

_OWN = "loca_theory.dependence.Structure and give it name, parameter, bounds and family"
# The structures that have an argument beside the parameter, and the type of the argument.
_MAKERS: dict[str, tuple[Callable[[Any], Structure], type]] = {
    "ar1": (ar1, float),
    "blocks": (blocks, int),
    "spiked": (spiked, int),
}


def find_structures(
    structures: str | Structure | Iterable[str | Structure],
) -> tuple[Structure, ...]:
    """Find structures by name; ``spiked:3`` is ``spiked(3)``.

    A structure of one's own is an object, its class, or ``module:attribute``.
    """
    chosen = tuple(map(_find_structure, _arguments.as_tuple(structures)))
    names = [structure.name for structure in chosen]
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            "structures must list at least one name and no name twice, not "
            + (", ".join(names) or "none")
        )
    return chosen


def structure_identity(structure: Structure) -> dict[str, Any]:
    """What distinguishes a structure from every other, as plain data."""
    described = {"name": structure.name, "option": structure.option}
    is_known = structure.name in STRUCTURES
    return described if is_known else {**described, "definition": definition(structure)}


def is_known_structure(structure: Structure) -> bool:
    """Whether a stored result of the structure can be told from one of another definition."""
    return structure.name in STRUCTURES or definition(structure) is not None


def _find_structure(structure: str | Structure) -> Structure:
    if isinstance(structure, str):
        name, _, option = structure.partition(":")
        is_attribute = option.replace(".", "").isidentifier()
        if name in STRUCTURES or not is_attribute:
            return _of_package(name, option)
    named, origin = named_object("structure", Structure, structure, _OWN)
    packaged = STRUCTURES.get(named.name, named)
    if type(named) is not type(packaged):
        raise InvalidArgumentError(
            f"{origin} has the name {named.name} of a structure of the package; "
            "give it another name"
        )
    if named.parameter not in PARAMETERS:
        raise InvalidArgumentError(
            f"{origin} needs a parameter: {', '.join(PARAMETERS)}, not {named.parameter!r}"
        )
    if named.__hash__ is None:
        raise InvalidArgumentError(
            f"{origin} cannot be a key; make its class a dataclass(frozen=True)"
        )
    return named


def _of_package(name: str, option: str) -> Structure:
    structure = find("structure", name, STRUCTURES)
    if not option:
        return structure
    if name not in _MAKERS:
        raise InvalidArgumentError(
            f"structures: {name} has no argument; write {name}, not {name}:{option}"
        )
    make, kind = _MAKERS[name]
    try:
        value = kind(option)
    except ValueError:
        form = "a whole number" if kind is int else "a number"
        raise InvalidArgumentError(
            f"structures: {name} takes {form} after its colon, not {option!r}"
        ) from None
    return make(value)

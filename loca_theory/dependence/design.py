"""The specification of a study, which its draws, searches and tables share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise, product
from typing import Any

from loca_theory import _arguments
from loca_theory.dependence.structure import Structure
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Budget, Method
from loca_theory.expressivity.methods.engine import Engine
from loca_theory.expressivity.methods.registry import find_methods, names_of, own_titles
from loca_theory.sweeps.store import described

COMPARED = find_methods(("LoRA", "LoCA"))
"""The methods that the crossings compare."""
DRAWN = find_methods(("LoRA", "Fourier pairs", "LoCA", "entries"))
"""The methods that approximate the correlated draws by default."""


class Protocol(StrEnum):
    """The reference of the low-rank error.

    - ``same-draw``: every method approximates the same correlated matrix.
    - ``iid-reference``: only LoRA approximates the correlated matrix; the other methods
      have their exact errors for independent entries. The paper's printed crossings follow from
      this protocol.
    """

    SAME_DRAW = "same-draw"
    IID_REFERENCE = "iid-reference"

    def draws(self, method: Method) -> bool:
        """Whether a method approximates the correlated draws."""
        return method.can_approximate if self is Protocol.SAME_DRAW else method is COMPARED[0]


DEFAULT_DRAWS, DEFAULT_NULL_DRAWS, DEFAULT_LEVEL = 100, 4000, 0.05
_DEFAULT_GRIDS = {
    "rho": tuple(round(0.01 * i, 10) for i in range(41)),
    "fraction": tuple(round(0.02 * i, 10) for i in range(21)),
    "exponent": tuple(round(0.1 * i, 10) for i in range(16)),
}
# For rho, the values at which the paper reports its statistic; for the others, a range of values.
_DETECTION_VALUES = {
    "rho": (0.09, 0.14, 0.17, 0.19),
    "fraction": (0.01, 0.02, 0.05, 0.1),
    "exponent": (0.1, 0.2, 0.5, 1.0),
}
# Random locations retain the same fraction of the energy of every matrix.
_ANY_MATRIX = METHODS["printed line"]
_DEFAULT_METHODS = {
    Protocol.SAME_DRAW: (*DRAWN, _ANY_MATRIX),
    Protocol.IID_REFERENCE: find_methods(
        ("LoRA", "LoCA", "upper bound", "lower bound", "printed line")
    ),
}
# Minimum number of null draws beyond a critical value.
_FEWEST_BEYOND = 20


@dataclass(frozen=True)
class Design:
    """Specification of a study of dependence; the fields are arguments of ``correlate``.

    LoRA and LoCA are always among the methods, because the study finds where their errors cross.
    """

    p: int
    q: int
    ranks: tuple[int, ...]
    structures: tuple[Structure, ...] = tuple(STRUCTURES.values())
    protocols: tuple[Protocol, ...] = tuple(Protocol)
    methods: tuple[Method, ...] | None = None
    rho: tuple[float, ...] | None = None
    fraction: tuple[float, ...] | None = None
    exponent: tuple[float, ...] | None = None
    draws: int = DEFAULT_DRAWS
    seed: int = 0
    detect: bool = False
    level: float = DEFAULT_LEVEL
    null_draws: int = DEFAULT_NULL_DRAWS

    def __post_init__(self) -> None:
        _arguments.fields_to_int(self, "p", "q", "draws", "seed", "null_draws")
        if self.draws < 2:
            raise InvalidArgumentError(
                f"a study needs at least 2 draws for its standard errors, not {self.draws}"
            )
        if not 0 < _arguments.real_number("level", self.level) < 1:
            raise InvalidArgumentError(f"the level must lie between 0 and 1, not {self.level}")
        self._check_grids()
        self._check_methods()
        if not self.protocols or len(set(self.protocols)) < len(self.protocols):
            raise InvalidArgumentError(
                "protocols must list at least one name and no name twice, not "
                + (", ".join(self.protocols) or "none")
            )
        if self.detect and self.level * self.null_draws < _FEWEST_BEYOND:
            raise InvalidArgumentError(
                f"a critical value at level {self.level:g} needs at least "
                f"{math.ceil(_FEWEST_BEYOND / self.level)} null draws, not {self.null_draws}"
            )

    def _check_grids(self) -> None:
        for structure in self.structures:
            grid = self.grid(structure)
            increases = all(a < b for a, b in pairwise(grid))
            if not (grid and increases and all(map(math.isfinite, grid))):
                raise InvalidArgumentError(
                    f"the values of {structure.parameter} must be finite and increase, "
                    f"not {', '.join(f'{value:g}' for value in grid) or 'none'}"
                )
            for value in grid:
                structure.check(self.p, self.q, value)
        used = {structure.parameter for structure in self.structures}
        for parameter in _DEFAULT_GRIDS:
            if getattr(self, parameter) is not None and parameter not in used:
                owners = [kind.name for kind in STRUCTURES.values() if kind.parameter == parameter]
                raise InvalidArgumentError(
                    f"{parameter}=... has no effect unless structures=... includes "
                    + " or ".join(owners)
                )

    def _check_methods(self) -> None:
        with_value = {
            method.name: method
            for protocol in self.protocols
            for method in self.methods_under(protocol)
        }
        for method, budget in product(with_value.values(), self.budgets):
            method.check_budget(budget)
        without = (method for method in self.methods or () if method.name not in with_value)
        for method in without:
            if method.can_approximate or self._has_exact_errors(method):
                other = Protocol.SAME_DRAW if method.can_approximate else Protocol.IID_REFERENCE
                msg = f"{method.name} has no value under {', '.join(self.protocols)}; "
                msg += f'leave it out, or use protocols="{other}"'
            else:
                msg = f"{method.name} does not approximate matrices and has no exact "
                msg += "error; leave it out, or define its approximate(matrix, budget, rng)"
            raise InvalidArgumentError(msg)

    def methods_under(self, protocol: Protocol) -> tuple[Method, ...]:
        """The methods that have a value under a protocol, in the order of its table."""
        if self.methods is None:
            return _DEFAULT_METHODS[protocol]
        names = {method.name for method in self.methods}
        methods = (*(method for method in COMPARED if method.name not in names), *self.methods)
        return tuple(method for method in methods if self._has_value(method, protocol))

    def _has_value(self, method: Method, protocol: Protocol) -> bool:
        is_known = method is _ANY_MATRIX
        if protocol is Protocol.IID_REFERENCE:
            is_known = self._has_exact_errors(method)
        return is_known or protocol.draws(method)

    def _has_exact_errors(self, method: Method) -> bool:
        return all(Engine.EXACT in method.engines(budget) for budget in self.budgets)

    @property
    def drawn(self) -> tuple[Method, ...]:
        """The methods applied to the draws under any of the protocols, and LoRA and LoCA."""
        methods = {
            method.name: method
            for protocol in self.protocols
            for method in self.methods_under(protocol)
            if protocol.draws(method)
        }
        return tuple(({method.name: method for method in COMPARED} | methods).values())

    def grid(self, structure: Structure) -> tuple[float, ...]:
        """The values of a structure's parameter."""
        grid = getattr(self, structure.parameter)
        return _DEFAULT_GRIDS[structure.parameter] if grid is None else grid

    def detection_values(self, structure: Structure) -> list[float]:
        """The values of a structure's parameter at which the statistics are compared."""
        if not self.detect:
            return []
        grid = self.grid(structure)
        values = _DETECTION_VALUES[structure.parameter]
        return [v for v in values if grid[0] <= v <= grid[-1]] or [grid[-1]]

    @cached_property
    def budgets(self) -> list[Budget]:
        """The budget of each rank."""
        return [Budget(self.p, self.q, r) for r in self.ranks]

    def describe(self) -> dict[str, Any]:
        """The expanded grid and options as plain data, for a manifest."""
        of_tests = () if self.detect else ("detect", "level", "null_draws")
        return {
            **described(
                self, "p", "q", "seed", "methods", "structures", *_DEFAULT_GRIDS, *of_tests
            ),
            "shape": [self.p, self.q],
            "structures": {kind.name: list(self.grid(kind)) for kind in self.structures},
            "options": {
                kind.name: kind.option for kind in self.structures if kind.option is not None
            },
            **({"methods": names_of(self.methods)} if self.methods is not None else {}),
            **own_titles(self.methods or ()),
        }

"""What a check is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from loca_theory.errors import InvalidArgumentError


class Effort(StrEnum):
    """How much work goes into a check; each later one outranks those before it."""

    QUICK = "quick"
    DEFAULT = "default"
    DEEP = "deep"

    @property
    def depth(self) -> int:
        """0, 1 or 2."""
        return list(Effort).index(self)


@dataclass(frozen=True)
class Setting:
    """What a check may use.

    Attributes:
        effort: How much work is wanted.
        rng: The only source of randomness; it depends on the root seed and the claim alone.
        results: Folder with the stored tables of experiments, None where there is none.
    """

    effort: Effort
    rng: np.random.Generator
    results: Path | None = None

    def scaled(self, quick: int, default: int, deep: int) -> int:
        """The number for the effort."""
        return (quick, default, deep)[self.effort.depth]

    def seed(self) -> int:
        """A root seed for what takes an integer."""
        return int(self.rng.integers(2**31))


@dataclass(frozen=True)
class Part:
    """One measured number.

    Attributes:
        name: What it is, among the parts of a claim.
        value: The estimate, or the exact value.
        standard_error: Of the estimate; 0 for an exact value.
        n: Replicates behind it; 1 for an exact value.
        successes: Where the value is a share of n trials, how many succeeded.

    Raises:
        InvalidArgumentError: the numbers are not finite, or there are no replicates.
    """

    name: str
    value: float
    standard_error: float = 0.0
    n: int = 1
    successes: int | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or not (np.isfinite(self.value) and 0 <= self.standard_error < np.inf):
            msg = f"{self.name or 'a part'} measured {self.value} ± {self.standard_error} from "
            msg += f"{self.n} replicates, which is no measurement"
            raise InvalidArgumentError(msg)

    @property
    def is_random(self) -> bool:
        """Whether another seed would give another number."""
        return self.standard_error > 0 or self.successes is not None

    @classmethod
    def mean(cls, replicates: ArrayLike, name: str = "") -> Part:
        """Mean and standard error of independent replicates, at least 2."""
        values = np.asarray(replicates, dtype=np.float64)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        return cls(name, float(values.mean()), error, len(values))

    @classmethod
    def share(cls, successes: int, trials: int, name: str = "") -> Part:
        """Successes in independent trials; the error shown is the binomial one."""
        share = successes / trials
        error = float(np.sqrt(share * (1 - share) / trials))
        return cls(name, share, error, trials, int(successes))


@dataclass(frozen=True)
class Measurement:
    """What a check has found.

    Attributes:
        parts: The numbers that the rule judges, one a comparison. None: the check could not run.
        note: What a reader should know beside them.
    """

    parts: tuple[Part, ...]
    note: str = ""

    @classmethod
    def exact(cls, value: float, note: str = "") -> Measurement:
        """A single exact value."""
        return cls((Part("", float(value)),), note)

    @classmethod
    def of(cls, parts: Part | Iterable[Part], note: str = "") -> Measurement:
        """From one part or several."""
        return cls((parts,) if isinstance(parts, Part) else tuple(parts), note)

    @classmethod
    def missing(cls, what: str) -> Measurement:
        """A check that lacks its data."""
        return cls((), what)

    def to_json(self) -> dict[str, Any]:
        """Plain data that :meth:`from_json` reads back exactly."""
        return {"parts": [asdict(part) for part in self.parts], "note": self.note}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Inverse of :meth:`to_json`."""
        parts: Sequence[Mapping[str, Any]] = data["parts"]
        return cls(tuple(Part(**part) for part in parts), data["note"])

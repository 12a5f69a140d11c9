"""What a check is given, and what it hands back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from loca_theory.errors import InvalidArgumentError


class Tier(StrEnum):
    """How much work goes into a check; each later one outranks those before it."""

    QUICK = "quick"
    DEFAULT = "default"
    DEEP = "deep"

    @property
    def depth(self) -> int:
        """0, 1 or 2."""
        return list(Tier).index(self)


@dataclass(frozen=True)
class Setting:
    """What a check may use.

    Attributes:
        tier: How much work is wanted.
        rng: The only source of randomness; it depends on the root seed and the claim alone.
        results: Folder with the stored tables of experiments, None if there is none.
    """

    tier: Tier
    rng: np.random.Generator
    results: Path | None = None

    def scaled(self, quick: int, default: int, deep: int) -> int:
        """The number for the tier."""
        return (quick, default, deep)[self.tier.depth]

    def seed(self) -> int:
        """A root seed for what takes an integer."""
        return int(self.rng.integers(2**31))


@dataclass(frozen=True)
class Estimate:
    """One measured number and its error.

    Attributes:
        name: What it is, among the numbers of a claim.
        value: The estimate, or the exact value.
        standard_error: Of the estimate; 0 for an exact value.
        n: Replicates behind it; 1 for an exact value.
        successes: Where the value is a fraction of n trials, how many succeeded.

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
            msg = f"{self.name or 'a number'} measured {self.value} ± {self.standard_error} from "
            msg += f"{self.n} replicates, which is not a measurement"
            raise InvalidArgumentError(msg)

    @property
    def is_random(self) -> bool:
        """Whether another seed would give another number."""
        return self.standard_error > 0 or self.successes is not None

    def __str__(self) -> str:
        """Value ± standard error, as many digits as the error bears."""
        if not self.standard_error:
            return f"{self.value:.6g}"
        return f"{self.value:.4g} ± {self.standard_error:.2g}"

    def interval(self, error_rate: float) -> tuple[float, float]:
        """Confidence interval that misses with probability ``error_rate`` at most.

        Clopper and Pearson's for a fraction, Student's for a mean, of length 0 for an exact value.

        Raises:
            InvalidArgumentError: alarm is not between 0 and 1.
        """
        if not 0 < error_rate < 1:
            msg = f"an interval misses with a probability between 0 and 1, not {error_rate}"
            raise InvalidArgumentError(msg)
        if self.successes is not None:
            # Takes a while to import.
            from scipy.stats import binomtest

            ends = binomtest(self.successes, self.n).proportion_ci(1 - error_rate, method="exact")
            return float(ends.low), float(ends.high)
        if self.standard_error == 0:
            return self.value, self.value
        half = -float(stdtrit(max(self.n - 1, 1), error_rate / 2)) * self.standard_error
        return self.value - half, self.value + half

    @classmethod
    def mean(cls, replicates: ArrayLike, name: str = "") -> Estimate:
        """Mean and standard error of independent replicates, at least 2."""
        values = np.asarray(replicates, dtype=np.float64)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        return cls(name, float(values.mean()), error, len(values))

    @classmethod
    def fraction(cls, successes: int, trials: int, name: str = "") -> Estimate:
        """Successes in independent trials; the error shown is the binomial one."""
        fraction = successes / trials
        error = float(np.sqrt(fraction * (1 - fraction) / trials))
        return cls(name, fraction, error, trials, int(successes))


@dataclass(frozen=True)
class Measurement:
    """What a check has found.

    Attributes:
        estimates: The numbers that the rule judges, one per comparison; none where the check could
            not run.
        note: What a reader should know beside them.
    """

    estimates: tuple[Estimate, ...]
    note: str = ""

    @classmethod
    def exact(cls, value: float, note: str = "") -> Measurement:
        """A single exact value."""
        return cls((Estimate("", float(value)),), note)

    @classmethod
    def of(cls, estimates: Estimate | Iterable[Estimate], note: str = "") -> Measurement:
        """From one estimate or several."""
        return cls((estimates,) if isinstance(estimates, Estimate) else tuple(estimates), note)

    @classmethod
    def missing(cls, what: str) -> Measurement:
        """A check that lacks its data."""
        return cls((), what)

    def to_json(self) -> dict[str, Any]:
        """Plain data that :meth:`from_json` reads back exactly."""
        return {"estimates": [asdict(one) for one in self.estimates], "note": self.note}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Inverse of :meth:`to_json`."""
        return cls(tuple(Estimate(**one) for one in data["estimates"]), data["note"])

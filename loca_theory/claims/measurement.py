"""The input of a check (a setting) and its output (a measurement)."""

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
    """How much work a check does; a result outranks those of earlier tiers."""

    QUICK = "quick"
    DEFAULT = "default"
    DEEP = "deep"

    @property
    def depth(self) -> int:
        """Position of the tier: 0, 1 or 2."""
        return list(Tier).index(self)


@dataclass(frozen=True)
class Setting:
    """The input of a check.

    Attributes:
        tier: How much work to do.
        rng: The only source of randomness; it depends only on the root seed and the claim.
        results: Folder with the stored tables of experiments, None if there is none.
    """

    tier: Tier
    rng: np.random.Generator
    results: Path | None = None

    def scaled(self, quick: int, default: int, deep: int) -> int:
        """Choose the number for the tier."""
        return (quick, default, deep)[self.tier.depth]

    def seed(self) -> int:
        """Draw a root seed, for functions that take an integer."""
        return int(self.rng.integers(2**31))


@dataclass(frozen=True)
class Estimate:
    """One measured number and its error.

    Attributes:
        name: Name among the numbers of its claim.
        value: The estimate, or the exact value.
        standard_error: Standard error of the estimate; 0 for an exact value.
        n: Number of replicates; 1 for an exact value.
        successes: Number of successes if the value is a fraction of n trials; None otherwise.
        bounds: Confidence bounds, if they were computed with the estimate at an error rate of their
            own; None otherwise.

    Raises:
        InvalidArgumentError: a number is not finite, or there are no replicates.
    """

    name: str
    value: float
    standard_error: float = 0.0
    n: int = 1
    successes: int | None = None
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.n < 1 or not (np.isfinite(self.value) and 0 <= self.standard_error < np.inf):
            msg = f"estimate {self.name!r} is {self.value} ± {self.standard_error} from {self.n} "
            msg += "replicates, which is not a measurement; give finite numbers, a standard error "
            msg += "of 0 or more, and at least 1 replicate"
            raise InvalidArgumentError(msg)

    @property
    def is_random(self) -> bool:
        """Whether it has an interval that shares the error rate of the ledger."""
        return self.bounds is None and (self.standard_error > 0 or self.successes is not None)

    def __str__(self) -> str:
        """Value ± standard error, rounded for a reader."""
        if not self.standard_error:
            return f"{self.value:.6g}"
        return f"{self.value:.4g} ± {self.standard_error:.2g}"

    def interval(self, error_rate: float) -> tuple[float, float]:
        """Confidence interval that misses the true value with probability at most ``error_rate``.

        It is Clopper and Pearson's for a fraction and Student's for a mean. An exact value has an
        interval of length 0. Bounds that came with the estimate are returned as they are.

        Raises:
            InvalidArgumentError: error_rate is not between 0 and 1.
        """
        if not 0 < error_rate < 1:
            msg = f"error_rate must be between 0 and 1, not {error_rate}"
            raise InvalidArgumentError(msg)
        if self.bounds is not None:
            return self.bounds
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
        """Mean and standard error of at least 2 independent replicates."""
        values = np.asarray(replicates, dtype=np.float64)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        return cls(name, float(values.mean()), error, len(values))

    @classmethod
    def fraction(cls, successes: int, trials: int, name: str = "") -> Estimate:
        """Fraction of successes in independent trials, with the binomial standard error."""
        fraction = successes / trials
        error = float(np.sqrt(fraction * (1 - fraction) / trials))
        return cls(name, fraction, error, trials, int(successes))


@dataclass(frozen=True)
class Measurement:
    """The output of a check.

    Attributes:
        estimates: The numbers that the rule judges; empty if the check could not run.
        note: Remark for the reader.
        verdict: The verdict, if the design of the experiments defines it; empty otherwise.
    """

    estimates: tuple[Estimate, ...]
    note: str = ""
    verdict: str = ""

    @classmethod
    def exact(cls, value: float, note: str = "") -> Measurement:
        """A measurement of a single exact value."""
        return cls((Estimate("", float(value)),), note)

    @classmethod
    def of(cls, estimates: Estimate | Iterable[Estimate], note: str = "") -> Measurement:
        """A measurement of one estimate or several."""
        return cls((estimates,) if isinstance(estimates, Estimate) else tuple(estimates), note)

    @classmethod
    def missing(cls, what: str) -> Measurement:
        """A measurement without estimates, for a check whose data are missing."""
        return cls((), what)

    def to_json(self) -> dict[str, Any]:
        """Plain data that :meth:`from_json` reads back exactly."""
        return {
            "estimates": [asdict(one) for one in self.estimates],
            "note": self.note,
            "verdict": self.verdict,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Inverse of :meth:`to_json`."""
        parts = (
            Estimate(**{**one, "bounds": one["bounds"] and tuple(one["bounds"])})
            for one in data["estimates"]
        )
        return cls(tuple(parts), data["note"], data["verdict"])

"""The tier that a check receives, and the estimates that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from loca_theory.errors import InvalidArgumentError, LocaTheoryError


class Tier(StrEnum):
    """How much work a check does; a result outranks those of earlier tiers."""

    QUICK = "quick"
    DEFAULT = "default"
    DEEP = "deep"

    @property
    def depth(self) -> int:
        """Position of the tier: 0, 1 or 2."""
        return list(Tier).index(self)

    def scaled(self, quick: int, default: int, deep: int) -> int:
        """Choose the number for the tier."""
        return (quick, default, deep)[self.depth]


class NotMeasuredError(LocaTheoryError):
    """A check lacks what it needs, such as a stored table; its claim is not run."""


Rng = np.random.Generator


def draw_seed(rng: np.random.Generator) -> int:
    """Draw a root seed, for functions that take an integer."""
    return int(rng.integers(2**31))


@dataclass(frozen=True)
class Estimate:
    """One measured number and its error.

    Attributes:
        value: The estimate, or the exact value.
        standard_error: Standard error of the estimate; 0 for an exact value.
        n: Number of replicates; 1 for an exact value.
        successes: Number of successes if the value is a fraction of n trials; None otherwise.
        bounds: Confidence bounds, if they were computed with the estimate at an error rate of their
            own; None otherwise.
        name: Name among the numbers of its claim.

    Raises:
        InvalidArgumentError: a number is not finite, or there are no replicates.
    """

    value: float
    standard_error: float = 0.0
    n: int = 1
    successes: int | None = None
    bounds: tuple[float, float] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.n < 1 or not (np.isfinite(self.value) and 0 <= self.standard_error < np.inf):
            raise InvalidArgumentError(
                f"estimate {self.name!r} is {self.value} ± {self.standard_error} from {self.n} "
                "replicates, which is not a measurement; give finite numbers, a standard error "
                "of 0 or more, and at least 1 replicate"
            )

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
            raise InvalidArgumentError(f"error_rate must be between 0 and 1, not {error_rate}")
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
    def mean(cls, replicates: ArrayLike) -> Estimate:
        """Mean and standard error of at least 2 independent replicates."""
        values = np.asarray(replicates, dtype=np.float64)
        error = float(values.std(ddof=1) / np.sqrt(len(values)))
        return cls(float(values.mean()), error, len(values))

    @classmethod
    def fraction(cls, successes: int, trials: int) -> Estimate:
        """Fraction of successes in independent trials, with the binomial standard error."""
        fraction = successes / trials
        error = float(np.sqrt(fraction * (1 - fraction) / trials))
        return cls(fraction, error, trials, int(successes))

    @classmethod
    def exceeding(cls, values: NDArray[Any], bound: float) -> Estimate:
        """Fraction of independent values above a bound."""
        return cls.fraction(int((values > bound).sum()), len(values))

    def less(self, other: Estimate, times: float = 1.0) -> Estimate:
        """Its difference from a multiple of an independent estimate."""
        error = float(np.hypot(self.standard_error, times * other.standard_error))
        return Estimate(self.value - times * other.value, error, min(self.n, other.n))


Estimates = tuple[Estimate, ...]
Found = float | Estimate | Mapping[str, float | Estimate]
# A check returns the numbers that the rule judges, a remark for the reader and, if the design
# of the experiments defines it, the verdict. An empty mapping means that the check could not run.
Returned = Found | tuple[Found, str] | tuple[Found, str, str]
# Or it yields each number with its name, or numbers and arrays of which the largest
# absolute entry is the number.
Named = Iterator[tuple[str, float | Estimate]]
Deviations = Iterator[ArrayLike]


@dataclass(frozen=True)
class Measured:
    """The measurement of a check.

    Attributes:
        estimates: The numbers that the rule judges; empty if the check could not run.
        remark: Remark of the check.
        designed: The verdict, if the design of the experiments defines it; empty otherwise.
        seconds: Duration of the check.
    """

    estimates: Estimates
    remark: str = ""
    designed: str = ""
    seconds: float = 0.0


def observed(returned: Returned | Named | Deviations) -> Measured:
    """The observation that a check returned or yielded."""
    parts: tuple[Any, ...] = returned if isinstance(returned, tuple) else (returned,)
    values, *remarks = parts
    if isinstance(values, Iterator):
        yielded = list(values)
        are_named = all(isinstance(pair, tuple) for pair in yielded)
        values = dict(yielded) if are_named else largest_entry(yielded)
    named = values if isinstance(values, Mapping) else {"": values}
    estimates = [
        replace(part, name=name) if isinstance(part, Estimate) else Estimate(float(part), name=name)
        for name, part in named.items()
    ]
    return Measured(tuple(estimates), *remarks)


def largest_entry(arrays: Iterable[ArrayLike]) -> float:
    """The largest absolute value among the entries of several arrays."""
    return max(float(np.abs(array).max()) for array in arrays)


def listed(numbers: Mapping[str, Any], form: str = "") -> str:
    """A note with the name and the value of each number."""
    return ", ".join(f"{name}: {number:{form}}" for name, number in numbers.items()) + "."


def extreme(pick: Callable[..., str], numbers: Mapping[str, float], note: str) -> tuple[float, str]:
    """The number that ``min`` or ``max`` picks, and a note with its name and how many there are.

    In the note, ``{at}`` is the name and ``{count}`` the number.
    """
    at = pick(numbers, key=lambda name: numbers[name])
    return numbers[at], note.format(at=at, count=len(numbers))

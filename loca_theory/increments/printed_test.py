r"""The paper's total-variation test of normality, as printed.

The procedure of the paper's appendix, with the choices that it leaves open as parameters. Entries
are compared with 10⁵ normal samples G instead of the normal law. The null distribution comes from
perturbed copies of these samples, G + σ_e e with e standard normal, so it lacks the counting error
that the samples themselves have. Only copies whose total variation from G is below ε are accepted.

**Drawing copies.** Only the counts of a copy matter. They differ from those of G by the samples
that cross an edge of a bin; a sample at the distance d from an edge does so with probability Φ(−t),
t = d/σ_e. If the bins are at least 12 σ_e wide, the crossings of all edges are drawn as independent
events: a sample cannot cross both edges of its bin, and two independent events do so with
probability of at most Φ(−6)² < 1e-18. Samples with t > 8.3 are taken not to cross (Φ(−8.3) <
1e-16). Among those with t > 2.5, which rarely cross, first a random subset is drawn in which each
is included with probability Φ(−2.5). If the bins are narrower, all samples are perturbed.

Source: the paper's appendix "Details of the Hypothesis Testing".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy import special

from loca_theory._types import Array
from loca_theory.errors import InvalidArgumentError, LocaTheoryError
from loca_theory.increments.histogram import REACH, Histogram, coarse_cells

_Counts = NDArray[np.int64]
_Draw = Callable[[int, np.random.Generator], _Counts]

_BINNINGS = (8, 4, 2, 1)
# Distances in standard deviations of the noise; see the module's docstring.
_NARROWEST, _NEVER, _RARE = 12.0, 8.3, 2.5
# Numbers drawn at a time.
_PIECE = 2**21
# Copies to try per copy that is wanted, before the test gives up.
_ATTEMPTS = 3
# If ε is at least this many samples, the loop ends after this few copies if none of them is nearer
# than twice ε: where a third of the copies would be accepted, this has a probability below 1e-10.
_SAMPLES, _FEW = 50, 5


class AcceptanceError(LocaTheoryError):
    """The printed test's loop finds too few perturbed copies to go on."""


class Tail(StrEnum):
    """Which tail of the null distribution gives the p-value of the paper's test.

    - ``upper``: the fraction of the null distribution at or above T, as usual in tests of fit.
    - ``percentile``: the fraction at or below T, the literal meaning of the paper's text.
    """

    UPPER = "upper"
    PERCENTILE = "percentile"


@dataclass(frozen=True)
class PrintedTest:
    """Settings of the test as printed, and the choices that the paper leaves open.

    Attributes:
        samples: Size of the reference sample G, 10⁵ as printed.
        noise: σ_e of the perturbation, in the units of the entries; 10⁻⁵ as printed.
        epsilon: Copies closer to G than this are accepted; 0.001 as printed.
        copies: Number of copies to accept; 100 as printed.
        sets: Samples of n points from each copy; 10 as printed.
        bins_per_sigma: Bins in one standard deviation, a divisor of 64; not printed. None selects
            the finest of 8, 4, 2 and 1 at which enough copies are accepted.
        tail: Interpretation of "percentile"; not printed.
    """

    samples: int = 100_000
    noise: float = 1e-5
    epsilon: float = 0.001
    copies: int = 100
    sets: int = 10
    bins_per_sigma: int | None = None
    tail: Tail = Tail.UPPER

    def reference(self, rng: np.random.Generator) -> Array:
        """Draw G, sorted; the tests of several matrices can share it."""
        return np.sort(rng.standard_normal(self.samples))

    def p_value(
        self, entries: Histogram, rng: np.random.Generator, reference: Array | None = None
    ) -> float:
        """Run the test.

        Args:
            entries: The counts.
            rng: Draws the perturbations and the samples.
            reference: G, from :meth:`reference`; None to draw it.

        Raises:
            AcceptanceError: too few copies are closer to G than ε, so the loop would not end.
            InvalidArgumentError: the grid cells cannot be merged into such bins, or G does not
                have the right size.
        """
        sample = self.reference(rng) if reference is None else reference
        if len(sample) != self.samples:
            raise InvalidArgumentError(
                f"reference must have the test's {self.samples} samples, not {len(sample)}"
                "; draw it with the method reference"
            )
        noise = self.noise / entries.standard_deviation
        bins, accepted = self._accepted(sample, noise, rng)
        n, size = entries.size, self.samples
        null = np.concatenate(
            [rng.multinomial(n, copy / size, size=self.sets) for copy in accepted]
        )
        expected = bin_counts(sample, bins) / size
        merged = np.add.reduceat(entries.counts, coarse_cells(bins, REACH))
        statistic = np.abs(merged / n - expected).sum()
        distances = np.abs(null / n - expected).sum(axis=1)
        beyond = distances >= statistic if self.tail is Tail.UPPER else distances <= statistic
        return float(beyond.mean())

    def _accepted(
        self, sample: Array, noise: float, rng: np.random.Generator
    ) -> tuple[int, _Counts]:
        """Bins in one standard deviation, and the counts of the accepted copies."""
        binnings = _BINNINGS if self.bins_per_sigma is None else (self.bins_per_sigma,)
        for bins in binnings[:-1]:
            with suppress(AcceptanceError):
                return bins, self._copies(sample, bins, noise, rng)
        return binnings[-1], self._copies(sample, binnings[-1], noise, rng)

    def _copies(self, sample: Array, bins: int, noise: float, rng: np.random.Generator) -> _Counts:
        coarse_cells(bins, REACH)  # raises if the bins are not allowed
        counts = bin_counts(sample, bins)
        draw = copies_of(sample, bins, noise)
        accepted = np.empty((0, len(counts)), dtype=np.int64)
        distances = np.empty(0)
        # The argument for giving up early needs an acceptance of at least a third to go on.
        few = _FEW if self.epsilon * self.samples >= _SAMPLES else 0
        half, limit = max(1, self.copies // 2), _ATTEMPTS * self.copies
        # The loop is only asked whether to go on after these numbers of copies.
        stops = sorted({few, half, limit})
        while len(accepted) < self.copies:
            drawn = len(distances)
            is_far = 0 < drawn == few and distances.min() > 2 * self.epsilon
            if is_far or drawn >= limit or (drawn >= half and not len(accepted)):
                raise AcceptanceError(
                    f"the paper's test accepted {len(accepted)} of {drawn} perturbed copies of "
                    f"its samples: their median total variation is {np.median(distances):.2g} "
                    f"and must be below epsilon = {self.epsilon:g}; raise epsilon, lower noise "
                    f"({noise:.2g} standard deviations) or use fewer bins"
                )
            stop = next(stop for stop in stops if stop > drawn)
            copies = draw(min(stop - drawn, self.copies - len(accepted)), rng)
            new_distances = np.abs(copies - counts).sum(axis=1) / (2 * self.samples)
            distances = np.concatenate([distances, new_distances])
            accepted = np.concatenate([accepted, copies[new_distances < self.epsilon]])
        return accepted


def bin_counts(z: Array, steps: int) -> _Counts:
    """Number of values in each bin of width 1/steps from −8 to 8, and beyond."""
    cells = np.floor(z * steps)
    np.clip(cells, -REACH * steps - 1, REACH * steps, out=cells)
    cells += REACH * steps + 1
    return np.bincount(cells.astype(np.intp), minlength=2 * REACH * steps + 2)


def copies_of(sample: Array, steps: int, noise: float) -> _Draw:
    """Make a function that draws the counts of perturbed copies.

    Returns:
        A function of the number of copies and the generator; it returns an array (copies, bins).
    """
    if noise * steps * _NARROWEST > 1:

        def draw_all(count: int, rng: np.random.Generator) -> _Counts:
            copies = (sample + noise * rng.standard_normal(len(sample)) for _ in range(count))
            return np.array([bin_counts(copy, steps) for copy in copies])

        return draw_all
    counts = bin_counts(sample, steps)
    often, seldom = _crossing_samples(sample, steps, noise)

    def draw_crossings(count: int, rng: np.random.Generator) -> _Counts:
        flows = np.zeros((count, 2, len(counts) - 1), dtype=np.int64)
        rows = max(1, _PIECE // max(1, len(often[0])))
        for start in range(0, count, rows):
            _cross_often(flows[start : start + rows], *often, rng)
        _cross_seldom(flows, *seldom, rng)
        upward = flows[:, 0] - flows[:, 1]
        return counts - np.diff(upward, axis=1, prepend=0, append=0)

    return draw_crossings


def _crossing_samples(sample: Array, steps: int, noise: float) -> list[tuple[Array, _Counts]]:
    """Probabilities of crossing an edge, and the edges: those that often cross, and that rarely do.

    One element per sample and edge. Edges count twice: crossings from below, then from above.
    """
    edges = np.arange(-REACH * steps, REACH * steps + 1) / steps
    middle = np.searchsorted(sample, edges)
    near, far = (
        np.searchsorted(sample, [edges - t * noise, edges + t * noise]) for t in (_RARE, _NEVER)
    )
    samples = []
    for begin, end in (
        ((near[0], middle), (middle, near[1])),
        ((far[0], near[1]), (near[0], far[1])),
    ):
        starts = np.concatenate(begin)
        lengths = np.concatenate(end) - starts
        owner = np.repeat(np.arange(len(lengths)), lengths)
        index = np.arange(len(owner)) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        distance = np.abs(sample[index] - np.tile(edges, 2)[owner])
        samples.append((special.ndtr(-distance / noise), owner))
    return samples


def _cross_often(
    flows: _Counts, probability: Array, owner: _Counts, rng: np.random.Generator
) -> None:
    """Draw every crossing by itself."""
    if not len(probability):
        return
    crosses = rng.random((len(flows), len(probability))) < probability
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    sums = np.add.reduceat(crosses, starts, axis=1, dtype=np.int64)
    flows.reshape(len(flows), -1)[:, owner[starts]] += sums


def _cross_seldom(
    flows: _Counts, probability: Array, owner: _Counts, rng: np.random.Generator
) -> None:
    """Draw the crossings of a random subset."""
    bound = special.ndtr(-_RARE)
    pairs = len(flows) * len(probability)
    drawn = rng.choice(pairs, rng.binomial(pairs, bound), replace=False, shuffle=False)
    copy, crossing = np.divmod(drawn, max(1, len(probability)))
    crosses = rng.random(len(drawn)) * bound < probability[crossing]
    cell = copy[crosses] * flows[0].size + owner[crossing[crosses]]
    flows += np.bincount(cell, minlength=flows.size).reshape(flows.shape)

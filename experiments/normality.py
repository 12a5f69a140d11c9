"""Size and power of the two total-variation tests.

``python -m experiments.normality`` draws samples of n entries from seven distributions and prints
the fraction of rejections at level 0.05, for the test as the paper prints it (upper tail, and the
literal percentile) and for the calibrated test (which tolerates a total variation of 0.001). It
also prints the calibrated estimate of the distance and its true value. It takes about ten minutes
on two cores with the defaults; ``--runs`` and ``--runs-large`` shorten it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy import stats

from loca_theory.cli.command import Command
from loca_theory.increments import PrintedTest, calibrated_test
from loca_theory.increments.histogram import Histogram, histogram
from loca_theory.increments.printed_test import AcceptanceError, Tail

Draw = Callable[[np.random.Generator, int], Any]
LEVEL = 0.05


def _rounded(rng: np.random.Generator, n: int) -> torch.Tensor:
    """Normal changes with σ = 10⁻³ of weights with σ = 0.02, both stored in bfloat16."""
    base = torch.from_numpy(0.02 * rng.standard_normal(n, dtype=np.float32))
    tuned = base + 1e-3 * torch.from_numpy(rng.standard_normal(n, dtype=np.float32))
    return tuned.bfloat16().float() - base.bfloat16().float()


def _two_scales(rng: np.random.Generator, n: int) -> np.ndarray:
    """One entry in ten has twice the standard deviation."""
    return rng.standard_normal(n) * np.where(rng.random(n) < 0.1, 2.0, 1.0)


def _two_scales_cdf(x: np.ndarray) -> np.ndarray:
    wide = x * np.sqrt(0.9 + 0.1 * 4)
    return 0.9 * stats.norm.cdf(wide) + 0.1 * stats.norm.cdf(wide / 2)


def _student(df: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: stats.t.cdf(x * np.sqrt(df / (df - 2)), df)


LAWS: dict[str, tuple[Draw, Callable[[np.ndarray], np.ndarray] | None]] = {
    "normal": (lambda rng, n: rng.standard_normal(n), stats.norm.cdf),
    "Student t, 50 df": (lambda rng, n: rng.standard_t(50, n), _student(50)),
    "Student t, 20 df": (lambda rng, n: rng.standard_t(20, n), _student(20)),
    "Student t, 5 df": (lambda rng, n: rng.standard_t(5, n), _student(5)),
    "Laplace": (lambda rng, n: rng.laplace(size=n), lambda x: stats.laplace.cdf(x * np.sqrt(2))),
    "two scales": (_two_scales, _two_scales_cdf),
    "normal, in bfloat16": (_rounded, None),
}


def true_distance(cdf: Callable[[np.ndarray], np.ndarray] | None) -> float | None:
    """Total variation distance of a distribution with mean 0 and variance 1 from N(0, 1)."""
    if cdf is None:
        return None
    x = np.linspace(-20, 20, 400_001)
    return float(np.abs(np.diff(cdf(x)) - np.diff(stats.norm.cdf(x))).sum() / 2)


def one_run(counts: Histogram, rng: np.random.Generator) -> dict[str, float]:
    """Rejections and estimate for one sample; NaN if the printed loop does not terminate."""
    found = calibrated_test(counts, rng, replicates=199)
    result = {"calibrated": float(found.p_value <= LEVEL), "estimate": found.estimate}
    for tail in Tail:
        result[tail] = np.nan
        with suppress(AcceptanceError):
            # The printed noise of 10⁻⁵ is taken in units of the entries' standard deviation, where
            # it is negligible.
            test = PrintedTest(tail=tail, noise=1e-5 * counts.standard_deviation)
            result[tail] = float(test.p_value(counts, rng) <= LEVEL)
    return result


@click.command(cls=Command)
@click.option("--runs", default=200, show_default=True, help="Samples of 300² and 768² entries.")
@click.option("--runs-large", default=20, show_default=True, help="Samples of 4096² entries.")
@click.option("--seed", default=0, show_default=True)
def main(runs: int, runs_large: int, seed: int) -> None:
    """Print the table of rejections and estimates."""
    columns = ("law", "n", "runs", "printed", "perc.", "calibrated", "TV", "estimate", "s.d.")
    table = Table(*columns, title=f"fraction rejected at {LEVEL}")
    for name, (draw, cdf) in LAWS.items():
        truth = true_distance(cdf)
        for side in (300, 768, 4096):
            count = runs_large if side > 1000 else runs
            results = []
            for run in range(count):
                rng = np.random.default_rng([seed, side, run])
                entries = torch.as_tensor(draw(rng, side * side))
                results.append(one_run(histogram(entries), rng))
            mean = {key: np.mean([one[key] for one in results]) for key in results[0]}
            spread = np.std([one["estimate"] for one in results], ddof=1)
            fractions = (f"{mean[key]:.2f}" for key in (Tail.UPPER, Tail.PERCENTILE, "calibrated"))
            shown = "" if truth is None else f"{truth:.4f}"
            estimate = f"{mean['estimate']:.4f}"
            table.add_row(
                name, f"{side}²", str(count), *fractions, shown, estimate, f"{spread:.4f}"
            )
    Console(width=100).print(table)


if __name__ == "__main__":
    main(prog_name="python -m experiments.normality")

"""Speed of the exact errors, of the low-rank sampler and of the command, with comparisons.

Run from the checkout: ``python -m benchmarks.expressivity [--out FILE.json] [PART]...``.

- *exact*: the exact errors of all methods at K = 4096, r = 8..32, and one expected sum of the
  largest squares, by which LoCA's errors are computed, compared with adaptive quadrature.
- *low rank*: the exact errors of low rank at r = 8..32, compared with 1,000 draws of the sampler at
  K = 4096 and with the singular values of one dense matrix.
- *sampler*: one draw of all leading singular values compared with other algorithms, on one thread.
- *start*: time of fresh processes that print an exact result, compared with an empty interpreter
  and with one that only imports what they import of other packages.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from scipy import integrate, special
from scipy.linalg import eigvalsh_tridiagonal
from threadpoolctl import threadpool_limits

from benchmarks._measure import interleaved, timed
from benchmarks._record import OUT, Record
from loca_theory.expressivity import Budget, exact_error
from loca_theory.expressivity.laws import low_rank_exact
from loca_theory.expressivity.laws.bidiagonal import leading_rows, sample_leading_eigenvalues
from loca_theory.expressivity.laws.low_rank_exact import expected_leading_energy
from loca_theory.expressivity.laws.order_statistics import expected_top_sum

PACKAGES = ("numpy", "scipy", "torch", "pandas", "click", "rich")
_SIZE, _RANKS = 4096, range(8, 33)
# The modules of other packages that an exact answer imports.
_EXACT_IMPORTS = (
    "import numpy, scipy.fft, scipy.linalg, scipy.optimize, scipy.special, joblib, psutil, "
    "threadpoolctl"
)


def measure_exact() -> list[dict[str, Any]]:
    """Measure all exact errors together, and one of LoCA compared with adaptive quadrature."""
    methods = ("printed line", "LoCA", "Fourier", "Fourier pairs", "upper bound", "lower bound")

    def ours() -> None:
        for r in _RANKS:
            for method in methods:
                exact_error(method, Budget(_SIZE, _SIZE, r))

    n, count = _SIZE**2, _SIZE * 8
    rows = timed(
        {
            "all six methods, 25 ranks": ours,
            "one expected sum of largest squares": lambda: expected_top_sum(n, count, 1),
            "the same by scipy.integrate.quad": lambda: _by_quadrature(n, count),
        }
    )
    gap = abs(_by_quadrature(n, count) / expected_top_sum(n, count, 1) - 1)
    return [*rows, {"what": "relative gap to quad", "value": gap}]


def _by_quadrature(n: int, count: int) -> float:
    """Integrate the textbook formula over the quantile, split at the step of the integrand."""

    def integrand(u: float) -> float:
        return special.ndtri(u / 2) ** 2 * special.betaincc(count, n - count, u)

    fraction = count / n
    spread = 9 * np.sqrt(fraction * (1 - fraction) / n)
    parts = [(0.0, fraction - spread), (fraction - spread, fraction), (fraction, fraction + spread)]
    return n * sum(integrate.quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in parts)


def measure_low_rank() -> list[dict[str, Any]]:
    """Measure the exact errors of low rank at r = 8..32 by size, next to simulation, one thread."""
    rng = np.random.default_rng(0)
    sizes, draws = (300, 768, _SIZE, 4 * _SIZE), 1000
    # Without the cache, which answers a second call at once.
    exact = low_rank_exact._leading_energy.__wrapped__
    rivals: dict[str, Callable[[], object]] = {
        f"exact, K = {size}": partial(exact, size, size, 32, 1.0) for size in sizes
    }
    simulated = f"1/20 of {draws:,} draws, K = {_SIZE}"
    rivals[simulated] = lambda: [
        sample_leading_eigenvalues(_SIZE, _SIZE, 32, rng) for _ in range(draws // 20)
    ]
    singular_values = partial(np.linalg.svd, rng.standard_normal((768, 768)), compute_uv=False)
    rivals["singular values of one dense matrix, K = 768"] = singular_values
    with threadpool_limits(1):
        rows = timed(rivals, simulated, "of_1000_draws")
    for row in rows:
        row["of_1000_draws"] /= 20
    for size in sizes:
        values = [
            expected_leading_energy(size, size, 32, refinement=refinement)[[8, 16, 24, 32]]
            for refinement in (1.0, 1.25)
        ]
        gap = np.abs(values[0] / values[1] - 1).max()
        rows.append({"what": f"relative gap of two grids, K = {size}", "value": float(gap)})
    return rows


def measure_sampler() -> list[dict[str, Any]]:
    """Measure one draw of the 32 leading σ² at K = 4096 and 300, on one thread."""
    rng = np.random.default_rng(0)
    rows = []
    for size in (_SIZE, 300):
        block = leading_rows(size, size, 32)
        d, e = rng.chisquare(size - np.arange(block)), rng.chisquare(size - 1 - np.arange(block))
        diagonal, beside = d + e, np.sqrt(e[:-1] * d[1:])
        last = {"select": "i", "select_range": (block - 32, block - 1)}
        rivals = {
            "ours (draw and eigenvalues)": partial(sample_leading_eigenvalues, size, size, 32, rng),
            "eigvalsh_tridiagonal(select='i') on the same block": partial(
                eigvalsh_tridiagonal, diagonal, beside, **last
            ),
        }
        if size == 300:
            rivals["dense draw and numpy.linalg.svd"] = lambda: np.linalg.svd(
                rng.standard_normal((300, 300)), compute_uv=False
            )
        with threadpool_limits(1):
            timings = timed(rivals, "ours (draw and eigenvalues)", "ratio_to_ours")
        rows += [{"K": size, **row} for row in timings]
    return rows


def measure_start(rounds: int = 11) -> list[dict[str, Any]]:
    """Measure processes from their start to an exact answer, in Python and as a command.

    The processor seconds (user and system, of all threads) depend less than the wall time on other
    processes that are busy.
    """
    answer = "import loca_theory; loca_theory.simulate(768, ranks=range(8, 33), engine='exact')"
    command = ["simulate", "--K", "768", "--r", "8..32", "--engine", "exact", "--quiet"]
    python = [sys.executable, "-c"]
    empty, imports = "empty interpreter", "imports of an exact answer"
    terminal = "the same, with click and rich"
    commands = {
        empty: [*python, "pass"],
        "import loca_theory": [*python, "import loca_theory"],
        imports: [*python, _EXACT_IMPORTS],
        "simulate in Python": [*python, answer],
        terminal: [*python, f"{_EXACT_IMPORTS}, click, rich.console, rich.table"],
        "loca-theory simulate": [sys.executable, "-m", "loca_theory", *command],
    }
    references = {
        "import loca_theory": empty,
        "simulate in Python": imports,
        "loca-theory simulate": terminal,
    }
    processor: dict[str, list[float]] = {name: [] for name in commands}

    def run_and_record(name: str) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(commands[name])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        processor[name].append(used)

    timings = interleaved(
        {name: partial(run_and_record, name) for name in commands},
        rounds=rounds,
        block_seconds=0.0,
        attempts=1,
    )
    rows = []
    for name, timing in timings.items():
        row = {"what": name, **timing.as_record(), "median_cpu_s": median(processor[name])}
        if reference := references.get(name):
            pairs = zip(processor[name], processor[reference], strict=True)
            row |= {
                "reference": reference,
                "ratio": timing.ratio_to(timings[reference]),
                "cpu_ratio": median(a / b for a, b in pairs),
            }
        rows.append(row)
    return rows


def _run(command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


PARTS = {
    "exact": measure_exact,
    "low rank": measure_low_rank,
    "sampler": measure_sampler,
    "start": measure_start,
}


@click.command()
@OUT
@click.argument("only", nargs=-1, metavar="[PART]...", type=click.Choice(PARTS))
def main(out: Path | None, only: tuple[str, ...]) -> None:
    """Measure speed, and print the results."""
    record = Record(out, PACKAGES)
    for name in only or PARTS:
        record.add(name, "", PARTS[name])


if __name__ == "__main__":
    main()

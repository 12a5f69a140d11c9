"""Which runs come next: tuning, then liveness, then the main comparison.

Liveness asks of each kind of tasks whether full fine-tuning beats linear probing. Each phase
follows from the rows of the phases before, by the rules of the design alone.
``experiments.equal_updates`` reads its design and tunes with this module too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.pretrained.analysis import by_kind
from experiments.pretrained.runs import FIRST, FULL, Design, Rows, Trial, score_of, tasks_of_kinds


def read_design(path: Path, defaults: Design = FIRST) -> Design:
    """Read a design; settings that it lacks come from ``defaults``."""
    design = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {*tasks_of_kinds(design), *design["tuning"].get("tasks", ())}
    tasks = {
        task: {**defaults["tasks"].get(task, {}), **design.get("tasks", {}).get(task, {})}
        for task in sorted(names)
    }
    digests = {task: {**defaults["digests"], **design.get("digests", {})}[task] for task in tasks}
    return {**defaults, **design, "tasks": tasks, "digests": digests}


DESIGN = read_design(Path(__file__).with_name("design.toml"))


class Rates(NamedTuple):
    """The rates that are tuned together, and that of locations."""

    adapter: float
    head: float
    location: float


def next_trials(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs that are missing in the first phase that is not complete."""
    for phase in (tuning, liveness, counted):
        if missing := [trial for trial in phase(rows, design) if trial not in rows]:
            return missing
    return []


# --- tuning ----------------------------------------------------------------------------------


def tuning(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs that tune all methods, as far as the rows decide which they are."""
    return [trial for method in design["rates"] for trial in halving(method, rows, design)[0]]


def halving(method: str, rows: Rows, design: Design = DESIGN) -> tuple[list[Trial], Rates | None]:
    """The runs that tune a method, as far as the rows decide, and the rates that win.

    In each rung all rates that are left have as many seeds, and the worse half is dropped. Then the
    rate of locations is chosen, for the method that has one, with the seeds of the last rung.

    Source: Jamieson and Talwalkar, AISTATS 2016 (arXiv:1502.07943).
    """
    chosen, location = design["tuning"], design["protocol"]["location_rate"]
    heads = [None] if method == chosen["probe"] else chosen["head_rates"]
    survivors = [
        Rates(rate, rate if head is None else head, location)
        for rate, head in product(design["rates"][method], heads)
    ]
    needed, rungs = [], chosen["rungs"]
    for seeds in rungs:
        needed += (trials := _tuning_trials(method, survivors, seeds, design))
        if any(trial not in rows for trial in trials):
            return needed, None
        survivors = _better_half(trials, rows)
    if method != chosen["moves"]:
        return needed, survivors[0]
    moved = [survivors[0]._replace(location=rate) for rate in chosen["location_rates"]]
    needed += (trials := _tuning_trials(method, moved, rungs[-1], design))
    if any(trial not in rows for trial in trials):
        return needed, None
    return needed, _better_half(trials, rows)[0]


def _tuning_trials(
    method: str, candidates: Iterable[Rates], seeds: int, design: Design
) -> list[Trial]:
    chosen = design["tuning"]
    return [
        trial_at(rates, "tuning", task, method, seed)
        for seed, task, rates in product(chosen["seeds"][:seeds], chosen["tasks"], candidates)
    ]


def trial_at(rates: Rates, setting: str, task: str, method: str, seed: int) -> Trial:
    """The run of a method on a task in a setting, at its rates and with a seed."""
    tunes = setting == "tuning"
    return Trial(
        setting, task, method, rates.adapter, rates.location, rates.head, seed, tunes=tunes
    )


def _better_half(trials: Sequence[Trial], rows: Rows) -> list[Rates]:
    """The half of the rates, rounded up, with the highest mean score, the best first.

    A run that diverged has the trivial score. Ties go to lower rates.
    """
    scores: dict[Rates, list[float]] = {}
    for trial in trials:
        rates = Rates(trial.rate, trial.head_rate, trial.location_rate)
        scores.setdefault(rates, []).append(score_of(rows[trial]))
    ranked = sorted(scores, key=lambda rates: (-sum(scores[rates]) / len(scores[rates]), rates))
    return ranked[: (len(ranked) + 1) // 2]


# --- live kinds ------------------------------------------------------------------------------


def liveness(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs of full fine-tuning and of the probe on the tasks of all kinds."""
    seeds, methods = design["liveness"]["seeds"], (FULL, design["tuning"]["probe"])
    cases = product(seeds, tasks_of_kinds(design), methods)
    return _tuned("liveness", cases, rows, design)


def _tuned(
    setting: str, cases: Iterable[tuple[int, str, str]], rows: Rows, design: Design
) -> list[Trial]:
    """Trials, by seed, task and method, at the rates that won."""
    won = {
        method: rates for method in design["rates"] if (rates := halving(method, rows, design)[1])
    }
    return [trial_at(won[method], setting, task, method, seed) for seed, task, method in cases]


def _liveness_scores(rows: Rows, design: Design = DESIGN) -> pd.DataFrame:
    """Mean scores in points of full fine-tuning and the probe by task, and the trivial score."""
    scouts = [rows[trial] for trial in liveness(rows, design)]
    table = pd.DataFrame([{**row, "score": 100 * score_of(row)} for row in scouts])
    means = table.pivot_table(index="task", columns="method", values="score")
    return means.assign(trivial=100 * table.groupby("task")["trivial"].first())


def gaps(rows: Rows, design: Design = DESIGN) -> dict[str, float]:
    """Points by which full fine-tuning leads the probe, by kind."""
    means = _liveness_scores(rows, design)
    gap = (means[FULL] - means[design["tuning"]["probe"]]).to_frame("gap")
    return {str(kind): float(points) for kind, points in by_kind(gap, design)["gap"].items()}


def live_kinds(rows: Rows, design: Design = DESIGN) -> list[str]:
    """The kinds in which full fine-tuning leads the probe by enough."""
    smallest = design["liveness"]["gap"]
    return [kind for kind, gap in gaps(rows, design).items() if gap >= smallest]


# --- what counts -----------------------------------------------------------------------------


def counted(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs of the main comparison, in the order of their seeds."""
    live, dead_seeds = live_kinds(rows, design), design["liveness"]["dead_seeds"]
    cases = [
        (seed, task, method)
        for seed in range(max(design["seeds"].values()))
        for kind, tasks in design["kinds"].items()
        for task, (method, seeds) in product(tasks, design["seeds"].items())
        if seed < (seeds if kind in live else min(seeds, dead_seeds))
    ]
    return _tuned("counted", cases, rows, design)


def failures(rows: Rows, design: Design = DESIGN) -> dict[str, dict[str, int]]:
    """Failed runs of the main comparison, by method and task; zero counts are omitted.

    A run fails if it diverged, or if its score is nearer to the trivial one than to the probe's
    mean in the phase before.
    """
    means = _liveness_scores(rows, design)
    best = means[design["tuning"]["probe"]].clip(lower=means["trivial"])
    highest = (means["trivial"] + best) / 2
    counts: dict[str, dict[str, int]] = {method: {} for method in design["seeds"]}
    for trial, row in rows.items():
        if trial.setting == "counted" and 100 * score_of(row) <= highest[trial.task]:
            of_method = counts[trial.method]
            of_method[trial.task] = of_method.get(trial.task, 0) + 1
    return counts

"""Which runs come next: those that tune, then those that show which kinds are live, then the rest.

Each phase follows from the rows of the phases before, by the rules of the design alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.pretrained.analysis import by_kind
from experiments.pretrained.runs import FIRST, FULL, Design, Trial
from experiments.verdicts import Row

Rows = Mapping[Trial, Row]


def read_design(path: Path, first: Design = FIRST) -> Design:
    """A design; what it lacks is as in the design of an earlier study."""
    design = tomllib.loads(path.read_text(encoding="utf-8"))
    names = {task for tasks in design.get("kinds", {}).values() for task in tasks}
    names |= {*design.get("tuning", {}).get("tasks", ()), *design.get("factorial", ())}
    tasks = {
        task: {**first["tasks"].get(task, {}), **design.get("tasks", {}).get(task, {})}
        for task in sorted(names)
    }
    digests = {task: {**first["digests"], **design.get("digests", {})}[task] for task in tasks}
    return {**first, **design, "tasks": tasks, "digests": digests}


DESIGN = read_design(Path(__file__).with_name("design.toml"))
DIAGNOSIS = read_design(Path(__file__).with_name("diagnosis.toml"))


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
    asked, rungs = [], chosen["rungs"]
    for seeds in rungs:
        asked += (trials := _tuning_trials(method, survivors, seeds, design))
        if any(trial not in rows for trial in trials):
            return asked, None
        survivors = _better_half(trials, rows)
    if method != chosen["moves"]:
        return asked, survivors[0]
    moved = [survivors[0]._replace(location=rate) for rate in chosen["location_rates"]]
    asked += (trials := _tuning_trials(method, moved, rungs[-1], design))
    if any(trial not in rows for trial in trials):
        return asked, None
    return asked, _better_half(trials, rows)[0]


def _tuning_trials(
    method: str, candidates: Iterable[Rates], seeds: int, design: Design
) -> list[Trial]:
    chosen = design["tuning"]
    every = product(chosen["seeds"][:seeds], chosen["tasks"], candidates)
    return [
        Trial("tuning", task, method, rates.adapter, rates.location, rates.head, seed, tunes=True)
        for seed, task, rates in every
    ]


def _better_half(trials: Sequence[Trial], rows: Rows) -> list[Rates]:
    """The half of the rates, rounded up, with the highest mean score, the best first.

    A run that diverged has the trivial score. Of equal rates the lower ones are better.
    """
    scores: dict[Rates, list[float]] = {}
    for trial in trials:
        metric, rates = (
            rows[trial]["metric"],
            Rates(trial.rate, trial.head_rate, trial.location_rate),
        )
        scores.setdefault(rates, []).append(rows[trial]["trivial"] if metric is None else metric)
    ranked = sorted(scores, key=lambda rates: (-sum(scores[rates]) / len(scores[rates]), rates))
    return ranked[: (len(ranked) + 1) // 2]


def _score(row: Row) -> float:
    return row["trivial"] if row["metric"] is None else row["metric"]


# --- live kinds ------------------------------------------------------------------------------


def liveness(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs of full fine-tuning and of the probe on the tasks of all kinds."""
    tasks = [task for tasks in design["kinds"].values() for task in tasks]
    methods = (FULL, design["tuning"]["probe"])
    every = product(design["liveness"]["seeds"], tasks, methods)
    return _tuned("liveness", every, rows, design)


def _tuned(
    setting: str, every: Iterable[tuple[int, str, str]], rows: Rows, design: Design
) -> list[Trial]:
    """Trials, by seed, task and method, at the rates that won."""
    won = {
        method: rates for method in design["rates"] if (rates := halving(method, rows, design)[1])
    }
    return [
        Trial(
            setting,
            task,
            method,
            won[method].adapter,
            won[method].location,
            won[method].head,
            seed,
            tunes=False,
        )
        for seed, task, method in every
    ]


def scouted(rows: Rows, design: Design = DESIGN) -> pd.DataFrame:
    """Mean scores in points of full fine-tuning and the probe by task, and the trivial score."""
    found = [rows[trial] for trial in liveness(rows, design)]
    table = pd.DataFrame([{**row, "score": 100 * _score(row)} for row in found])
    means = table.pivot_table(index="task", columns="method", values="score")
    return means.assign(trivial=100 * table.groupby("task")["trivial"].first())


def gaps(rows: Rows, design: Design = DESIGN) -> dict[str, float]:
    """Points by which full fine-tuning leads the probe, by kind."""
    means = scouted(rows, design)
    gap = (means[FULL] - means[design["tuning"]["probe"]]).to_frame("gap")
    return {str(kind): float(points) for kind, points in by_kind(gap, design)["gap"].items()}


def live_kinds(rows: Rows, design: Design = DESIGN) -> list[str]:
    """The kinds in which full fine-tuning leads the probe by enough."""
    least = design["liveness"]["gap"]
    return [kind for kind, gap in gaps(rows, design).items() if gap >= least]


# --- what counts -----------------------------------------------------------------------------


def counted(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs that count, in the order of their seeds."""
    live, dead_seeds = live_kinds(rows, design), design["liveness"]["dead_seeds"]
    every = [
        (seed, task, method)
        for seed in range(max(design["seeds"].values()))
        for kind, tasks in design["kinds"].items()
        for task, (method, seeds) in product(tasks, design["seeds"].items())
        if seed < (seeds if kind in live else min(seeds, dead_seeds))
    ]
    return _tuned("counted", every, rows, design)


def failures(rows: Rows, design: Design = DESIGN) -> dict[str, dict[str, int]]:
    """The number of runs that count and failed, by method and task, without tasks that have none.

    A run fails if it diverged, or if its score is nearer to the trivial one than to the probe's
    mean in the phase before.
    """
    means = scouted(rows, design)
    best = means[design["tuning"]["probe"]].clip(lower=means["trivial"])
    highest = (means["trivial"] + best) / 2
    counts: dict[str, dict[str, int]] = {method: {} for method in design["seeds"]}
    for trial, row in rows.items():
        if trial.setting == "counted" and 100 * _score(row) <= highest[trial.task]:
            of_method = counts[trial.method]
            of_method[trial.task] = of_method.get(trial.task, 0) + 1
    return counts


# --- the diagnosis ---------------------------------------------------------------------------


def diagnosis(design: Design = DIAGNOSIS) -> list[Trial]:
    """The runs of the factorial that came before the design."""
    return [
        Trial("diagnosis", task, **design["arms"][arm], head_rate=head, seed=seed, tunes=True)
        for task, chosen in design["factorial"].items()
        for seed, arm, head in product(chosen["seeds"], chosen["arms"], design["head_rates"])
    ]

"""The runs that ``design.toml`` asks for: those that choose learning rates, then those that count.

The probe is tuned first, whose rate is that of the new head in all other runs; then the rates of
the methods; then, at its rate, the location rate of LoCA. Each setting is tuned by itself, except
for the probe, which is the same in all, and those that take the rates of another.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from experiments.finetuning.methods import find_method, rates_beyond
from experiments.finetuning.protocol import best_rate

_GRID = "text"  # group of tasks of the grids in methods.toml


@cache
def read_design() -> dict[str, Any]:
    """Everything that is fixed before the runs."""
    return tomllib.loads(Path(__file__).with_name("design.toml").read_text(encoding="utf-8"))


def tasks_of(setting: str) -> list[str]:
    """The tasks of a setting."""
    design = read_design()
    return list(design["settings"][setting].get("tasks", design["tasks"]))


@dataclass(frozen=True)
class Trial:
    """A run: a method with its rates on a task, in a setting, with one seed."""

    setting: str
    task: str
    method: str
    rate: float
    location_rate: float
    head_rate: float
    seed: int
    tunes: bool


Done = Mapping[Trial, Mapping[str, Any]]
"""Rows of the runs that are stored."""


def missing(setting: str, methods: Sequence[str], done: Done) -> list[Trial]:
    """The runs of some methods that are next: those that a choice lacks, or all that count."""
    design = read_design()
    own = design["settings"][setting]
    tuned_in = own.get("rates", setting)
    _, needed = chosen_rates("main", design["tuning"]["probe"], done)
    chosen: dict[str, tuple[float, float, float]] = {}
    for method in () if needed else methods:
        (rate, moves, head), further = chosen_rates(tuned_in, method, done)
        chosen[method] = (rate, own.get("location_rate", moves), head)
        needed = [*needed, *further]
    return needed or [
        trial
        for seed in range(own.get("seeds", design["seeds"]))
        for task in tasks_of(setting)
        for method in methods
        if (trial := Trial(setting, task, method, *chosen[method], seed, tunes=False)) not in done
    ]


def chosen_rates(
    setting: str, method: str, done: Done
) -> tuple[tuple[float, float, float], list[Trial]]:
    """Rates of a method, its locations and the head, and the runs that this choice still needs."""
    tuning, usual = read_design()["tuning"], read_design()["protocol"]["location_rate"]
    grid, probe = find_method(method).rates(_GRID), tuning["probe"]

    def tuned(rate: float, location_rate: float, head_rate: float) -> list[Trial]:
        rates, runs = (rate, location_rate, head_rate), product(tuning["seeds"], tuning["tasks"])
        return [Trial(setting, task, method, *rates, seed, tunes=True) for seed, task in runs]

    if method == probe:  # it trains nothing but its head
        rate, needed = _best(grid, lambda one: tuned(one, usual, one), done)
        return (rate, usual, rate), needed
    (head, *_), needed = chosen_rates("main", probe, done)
    rate, further = _best(grid, lambda one: tuned(one, usual, head), done)
    if method != tuning["moves"] or needed or further:
        return (rate, usual, head), [*needed, *further]
    moves = tuning["location_rates"]
    moved, needed = _best(moves, lambda one: tuned(rate, one, head), done)
    return (rate, moved, head), needed


def _best(
    grid: Sequence[float], trials: Callable[[float], list[Trial]], done: Done
) -> tuple[float, list[Trial]]:
    """The best of a grid, which is extended where an end wins, and the runs that are missing."""
    # Of equals the highest wins: far below, no location moves at any rate.
    tried = sorted(grid, reverse=True)
    while True:
        runs = {rate: trials(rate) for rate in tried}
        by_seed = zip(*runs.values(), strict=True)
        needed = [one for same in by_seed for one in same if one not in done]
        found = {rate: [done[one]["metric"] for one in own if one in done]
                 for rate, own in runs.items()}  # fmt: skip
        best = best_rate(tried, found)
        further = () if needed else rates_beyond(tried, best)
        if not further:
            return best, needed
        tried = sorted([*tried, *further], reverse=True)

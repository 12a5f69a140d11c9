"""The toy experiment as a rate, under several readings of what its description leaves open."""

from __future__ import annotations

from math import hypot

from loca_theory.claims.measurement import Measurement, Part, Setting
from loca_theory.convergence import ConvergenceStudy


def recovery(setting: Setting, *, search: str, reading: str = "default") -> Measurement:
    """Share of random problems in which all true locations are found.

    Args:
        setting: How much work: 500, 2000 or 10000 problems.
        search: How places move: ``central`` is the paper's.
        reading: What is assumed of the description
            (:data:`~loca_theory.convergence.READINGS`).

    Source: appendix "Toy Experiment of the Convergence".
    """
    rows = _rows(setting, (search,), reading, setting.scaled(500, 2000, 10_000))
    row = rows[search]
    note = f"{row['problems']} problems, {row['steps']} steps, {row['diverged']} diverged."
    return Measurement.of(Part.share(_recovered(row), row["problems"]), note)


def advantage(setting: Setting, *, search: str, over: str) -> Measurement:
    """Share recovered by one search less that of another; the problems are the same.

    Source: the remark that closes the appendix on the toy experiment.
    """
    problems = setting.scaled(500, 4000, 20_000)
    rows = _rows(setting, (search, over), "default", problems)
    better, worse = (Part.share(_recovered(rows[name]), problems) for name in (search, over))
    # As if on different problems, which is on the safe side.
    error = hypot(better.standard_error, worse.standard_error)
    note = f"{search}: {better.value:.4f}; {over}: {worse.value:.4f}."
    return Measurement.of(Part("", better.value - worse.value, error, problems), note)


def _rows(
    setting: Setting, searches: tuple[str, ...], reading: str, problems: int
) -> dict[str, dict]:
    study = ConvergenceStudy(
        searches=searches, readings=(reading,), problems=problems, seed=setting.seed(), jobs=1
    )
    return {row["search"]: row for row in study.run()["rows"]}


def _recovered(row: dict) -> int:
    return round(row["recovered"] * row["problems"])

"""Read the designs of the experiments, ``experiments/design.toml`` for example, and check them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.finetuning.methods import find_method
from experiments.finetuning.run_tables import SETTINGS
from experiments.finetuning.settings import settings
from experiments.finetuning.verdicts.design import (
    KINDS,
    MEASURES,
    Arm,
    Comparison,
    Design,
    Family,
    VariedSetting,
    for_task,
)
from loca_theory.errors import InvalidArgumentError, ResourceError

_FOLDER = Path(__file__).parents[2]
DESIGN, MANY_TASKS = _FOLDER / "design.toml", _FOLDER / "many-tasks.toml"
DESIGNS = (DESIGN, MANY_TASKS)
_RATE = "rate"
_LEAST_MARGIN = 0.5


def read_design(path: Path = DESIGN) -> Design:
    """Read a design and check that it can be run."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"{path} cannot be read as a design ({error}); give a TOML file"
        raise ResourceError(msg) from error
    try:
        design = _parsed(given)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        msg = f"{path.name} is not a complete design ({type(error).__name__}: {error}); "
        msg += "compare it with experiments/design.toml"
        raise InvalidArgumentError(msg) from error
    _check(design)
    return design


def _parsed(given: Mapping[str, Any]) -> Design:
    seeds = dict(given["seeds"])
    seconds = dict(given["cost"])
    tuning, rates = seeds.pop("tuning"), seeds.pop("rates")
    hours = seconds.pop("hours")
    seeds[""], seconds[""] = seeds.pop("results"), seconds.pop("seconds")
    tasks = tuple(given["tasks"]["all"])
    if "draws" in given["tasks"]:
        draws = range(1, given["tasks"]["draws"] + 1)
        tasks = tuple(f"{name}-{draw}" for name in tasks for draw in draws)
    return Design(
        fixed=given["date"],
        analysis=given["analysis"].strip(),
        families={name: Family(**entry) for name, entry in given["families"].items()},
        comparisons=tuple(
            _comparison({"between": given["power"]["between"], **entry}, tasks, seeds)
            for entry in given["comparisons"]
        ),
        context=tuple(given.get("context", {}).get("methods", ())),
        curves=tuple(
            VariedSetting(entry["method"], entry["setting"], tuple(entry["values"]))
            for entry in given.get("curves", ())
        ),
        undecided={entry["claim"]: entry["reason"] for entry in given.get("undecided", ())},
        tasks=tasks,
        seeds=seeds,
        tuning_seeds=tuning,
        rates=rates,
        seconds=seconds,
        hours=hours,
        wanted_power=given["power"]["wanted"],
    )


def _comparison(
    entry: dict[str, Any], tasks: tuple[str, ...], seeds: Mapping[str, int]
) -> Comparison:
    name, setting = entry.pop("method"), entry.pop("setting", "")
    if setting:
        inside, outside = entry.pop("inside"), entry.pop("outside")
        method = tuple(Arm(name, None, setting, value) for value in inside)
        over = tuple(Arm(name, None, setting, value) for value in outside)
    else:
        r = entry.pop("r", None)
        over_r = entry.pop("over_r", r)
        method = _at_budgets(name, r)
        over = _at_budgets(entry.pop("over"), over_r)
    mine = tuple(entry.pop("tasks", tasks))
    numbers = [for_task(seeds, task) for task in mine]
    return Comparison(
        method=method,
        over=over,
        tasks=mine,
        seeds=min(numbers, default=0),
        claims=tuple(entry.pop("claims", ())),
        spread_from=entry.pop("standard_deviation_from"),
        between=tuple(entry.pop("between")),
        **entry,
    )


def _at_budgets(method: str, r: int | Sequence[int] | None) -> tuple[Arm, ...]:
    if r is None or isinstance(r, int):
        return (Arm(method, r),)
    return tuple(Arm(method, one) for one in r)


def _check(design: Design) -> None:
    names = [one.name for one in design.comparisons]
    _require(len(set(names)) == len(names), "two comparisons have one name", "rename one")
    for task in {*design.tasks, *(task for one in design.comparisons for task in one.tasks)}:
        settings(task)
    for _, arm in design.arms():
        find_method(arm.method)
        _known("setting", arm.setting, ("", *SETTINGS, _RATE))
        _require(arm.r is None or arm.r >= 1, f"r={arm.r} is not a budget", "use 1 or more")
    for one in design.comparisons:
        _known("family", one.family, design.families)
        _known("kind", one.kind, KINDS)
        _known("measure", one.measure, MEASURES)
        mine = f"comparison {one.name}"
        _require(
            math.isfinite(one.margin) and one.margin > 0,
            f"{mine}: margin={one.margin} is not positive",
            f"use {_LEAST_MARGIN} or more",
        )
        _require(
            one.margin >= _LEAST_MARGIN,
            f"{mine}: margin={one.margin} is too small to be decided",
            f"use {_LEAST_MARGIN} or more",
        )
        _require(one.seeds >= 2, f"{mine}: seeds={one.seeds} have no variance", "use 2 or more")
        _require(
            math.isfinite(one.standard_deviation) and one.standard_deviation > 0,
            f"{mine}: standard_deviation={one.standard_deviation} is not positive",
            "use 2 if it is not known",
        )
        _require(bool(one.tasks), f"{mine} has no task", "name one")
        _require(
            bool(one.method) and bool(one.over) and not {*one.method} & {*one.over},
            f"{mine} compares runs with themselves or with none",
            "give two sides that differ",
        )
        _require(
            all(arm.setting != _RATE for arm in (*one.method, *one.over)),
            f"{mine}: setting={_RATE} is chosen by tuning",
            f"use one of {', '.join(SETTINGS)}",
        )
    hours = design.cost().hours
    _require(
        hours <= design.hours,
        f"the runs take {hours:.1f} CPU hours, more than {design.hours}",
        "use fewer seeds or comparisons",
    )


def _known(what: str, name: str, known: Collection[str]) -> None:
    listed = ", ".join(one for one in known if one)
    _require(name in known, f"there is no {what} {name}", f"use one of {listed}")


def _require(condition: bool, problem: str, way_out: str) -> None:
    if not condition:
        msg = f"{problem}; {way_out}"
        raise InvalidArgumentError(msg)

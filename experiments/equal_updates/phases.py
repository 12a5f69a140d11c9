"""Which runs there are: those that tune, then those that count, at rates by three rules."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from experiments.finetuning.adaptation import default_config
from experiments.finetuning.methods import find_method
from experiments.live_kinds import phases
from experiments.live_kinds.phases import Rates, read_design
from experiments.pretrained.runs import Design, Rows, Trial, tasks_of_kinds
from loca_theory.adapters import LoCAConfig, equivalent_lr

ONE_RATE, EQUAL_UPDATE, TUNED = RULES = ("one rate", "one step", "tuned")
"""The rules by which a method gets its rate; the design calls the first update a step."""
_WIDTH, _DIGITS = 384, 3  # of MiniLM's layers; of equivalent rates


def _design() -> dict[str, Any]:
    first = phases.DESIGN
    design: dict[str, Any] = dict(read_design(Path(__file__).with_name("design.toml"), first))
    for table in ("tuning", "protocol"):
        design[table] = {**first[table], **design[table]}
    return design


DESIGN = _design()


def methods(design: Design = DESIGN) -> list[str]:
    """All methods, LoRA first."""
    return [*design["defaults"], *design["others"]]


def next_trials(rows: Rows, design: Design = DESIGN) -> list[Trial]:
    """The runs that are missing in the first phase that is not complete."""
    needed, won = tuning(rows, design)
    if won is not None:
        needed = counted(rates(won, design), design)
    return [trial for trial in needed if trial not in rows]


def tuning(rows: Rows, design: Design = DESIGN) -> tuple[list[Trial], dict[str, Rates] | None]:
    """The runs that tune, as far as the rows decide which they are, and the rates that win.

    The rate of the head is tuned with LoRA, and is that of all methods.
    """
    reference, *compared = methods(design)
    needed, best = phases.halving(reference, rows, design)
    if best is None:
        return needed, None
    won: dict[str, Rates] = {reference: best}
    design = {**design, "tuning": {**design["tuning"], "head_rates": [best.head]}}
    for method in compared:
        trials, best = phases.halving(method, rows, design)
        needed += trials
        if best is not None:
            won[method] = best
    return needed, won if len(won) == len(compared) + 1 else None


def rates(won: dict[str, Rates], design: Design = DESIGN) -> dict[str, dict[str, Rates]]:
    """The rates of each method by each rule, from those that won."""
    best = won[design["reference"]]
    return {
        ONE_RATE: dict.fromkeys(design["defaults"], best),
        EQUAL_UPDATE: {
            method: best._replace(adapter=equivalent(method, best.adapter, design))
            for method in methods(design)
        },
        TUNED: won,
    }


@cache
def _ratio(method: str, reference: str, r: int) -> float:
    """The equivalent of LoRA's rate 1; each of these adapters moves W in proportion to its rate."""
    kind = find_method(method)
    is_default = kind.kind == "default"
    config = default_config(kind, 0) if is_default else LoCAConfig(n_frequency=2 * r * _WIDTH)
    lora = default_config(find_method(reference), 0)
    return equivalent_lr(config, lora, (_WIDTH, _WIDTH), lr=1e-3) / 1e-3


def equivalent(method: str, rate: float, design: Design = DESIGN) -> float:
    """The rate at which the first update of a method is as large as that of LoRA at its rate."""
    if method == design["reference"]:
        return rate
    factor = _ratio(method, design["reference"], design["protocol"]["r"])
    return float(f"{rate * factor:.{_DIGITS}g}")


def counted(by_rule: dict[str, dict[str, Rates]], design: Design = DESIGN) -> list[Trial]:
    """The runs that count, in the order of their seeds; rules that agree on a rate share them."""
    pairs = dict.fromkeys(pair for chosen in by_rule.values() for pair in chosen.items())
    cases = product(range(design["seeds"]), tasks_of_kinds(design), pairs)
    return [
        phases.trial_at(chosen, "counted", task, method, seed)
        for seed, task, (method, chosen) in cases
    ]

"""Test whether the reconstruction error predicts the better adapter.

The increments ΔW of a full fine-tune determine how much of their energy each method can retain at
a budget. The method that retains most is forecast to reach the best metric, and the forecast is
compared with the metric that the fine-tuned adapters reach. The runs are those of the budgets; runs
that are already stored are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import click
from rich.table import Table

from experiments.budgets import sweep
from experiments.comparison import compare
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.protocol import Row
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import interval, summary
from experiments.finetuning.training import HIGHER_IS_BETTER

# The reconstruction that each adapter can reach at best: its accounting and its method.
BEST_OF = {
    "lora": ("paper", "R"),
    "fourierft": ("trainable", "FourierFT"),
    "loca-v1": ("trainable", "V1"),
    "loca": ("trainable", "D"),
    "loca-charged": ("paper", "D"),
    "loca-reselect": ("trainable", "D"),
}
_DEFAULT, _ALL = ("vision", "text"), ("vision", "text", "generation")
_METHODS = (("paper", "R"), ("paper", "D"), ("paper", "F3"), ("paper", "S"), ("trainable", "D"),
           ("trainable", "S"), ("trainable", "FourierFT"))  # fmt: skip


def forecasts(done: Sequence[Finished]) -> tuple[list[Row], list[Row]]:
    """Compute errors of the full fine-tunes, and forecast and outcome per method and budget.

    Returns:
        ``errors``: mean of each method's relative squared error over the seeds, with its interval;
        ``methods``: the summary of the runs with ``retained_energy`` added.
    """
    by_method: dict[tuple[str, str, int], list[float]] = {}
    task = done[0].configuration.task
    for one in done:
        for entry in one.result.get("increments", {}).get("errors", []):
            key = (entry["accounting"], entry["method"], entry["r"])
            by_method.setdefault(key, []).append(entry["error"])
    errors = [
        {
            "task": task,
            "accounting": accounting,
            "method": method,
            "r": r,
            **dict(zip(("error", "low", "high"), interval(found), strict=True)),
            "seeds": len(found),
        }
        for (accounting, method, r), found in by_method.items()
    ]
    if not errors:
        return [], []
    lines = summary([one.row for one in done], ("task", "method", "r"))
    methods = [
        {**line, "retained_energy": 1 - interval(by_method[*BEST_OF[line["method"]], line["r"]])[0]}
        for line in lines
        if line["method"] in BEST_OF and line["mean"] is not None
    ]
    return errors, methods


def agreement(methods: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """Compare forecast and outcome for each pair of methods and budget.

    Pairs whose forecasts or outcomes are equal are dropped.

    Args:
        methods: Rows with ``retained_energy``, of one task.
        rows: The runs, which are compared seed by seed.

    Returns:
        ``forecast`` and ``winner``: the better method by retained energy and by mean metric;
        ``right``: whether they agree; the differences in retained energy and in the metric
        (positive if ``first`` is better), the latter with a 95% interval; ``clear``: whether that
        interval excludes 0.
    """
    retained = {(line["method"], line["r"]): line["retained_energy"] for line in methods}
    metric: dict[tuple[str, int], dict[int, float]] = {}
    for entry in rows:
        if not entry["diverged"]:
            metric.setdefault((entry["method"], entry["r"]), {})[entry["seed"]] = entry["metric"]
    sign = 1 if HIGHER_IS_BETTER[rows[0]["measure"]] else -1
    found = []
    for first, second in combinations(BEST_OF, 2):
        for r in sorted({line["r"] for line in methods}):
            a, b = metric.get((first, r), {}), metric.get((second, r), {})
            differences = [sign * (a[seed] - b[seed]) for seed in a if seed in b]
            if BEST_OF[first] == BEST_OF[second] or not differences:
                continue
            forecast = retained[first, r] - retained[second, r]
            mean, low, high = interval(differences)
            if forecast == 0 or mean == 0:
                continue
            found.append(
                {
                    "task": rows[0]["task"],
                    "first": first,
                    "second": second,
                    "r": r,
                    "forecast": first if forecast > 0 else second,
                    "winner": first if mean > 0 else second,
                    "right": (forecast > 0) == (mean > 0),
                    "clear": low > 0 or high < 0,
                    "retained_difference": forecast,
                    "metric_difference": mean,
                    "metric_low": low,
                    "metric_high": high,
                }
            )
    return found


@session_command
@click.option("--task", help="text, vision or generation, at all budgets.")
def main(session: Session, task: str | None) -> None:
    """Compare forecasts from a full fine-tune's increments with what adapters reach.

    By default: vision at every budget and text at one; with --full every task at every budget.

    Example: python -m experiments.theory_to_practice --seeds 10
    """
    chosen = (task,) if task else _ALL if session.full else _DEFAULT
    errors: list[Row] = []
    methods: list[Row] = []
    pairs: list[Row] = []
    for name in chosen:
        at_all = name != "text" or bool(task) or session.full
        done = sweep(session, name) if at_all else compare(session, name)
        own_errors, own_methods = forecasts(done)
        if not own_errors:
            msg = f"every full fine-tune on {name} diverged, so there is nothing to forecast from"
            raise click.ClickException(msg)
        errors += own_errors
        methods += own_methods
        pairs += agreement(own_methods, [one.row for one in done])
    own = f"-{task}" if task else ""
    session.store("theory_practice" + own, {"": methods, "errors": errors, "pairs": pairs})
    session.draw("theory_practice", methods, own)
    for name in chosen:
        _print(name, errors, pairs)


def _print(task: str, errors: Sequence[Row], pairs: Sequence[Row]) -> None:
    mine = {(e["accounting"], e["method"], e["r"]): e for e in errors if e["task"] == task}
    ranks = sorted({key[2] for key in mine})
    table = Table("accounting", "method", *(f"r = {r}" for r in ranks), box=None, pad_edge=False)
    for accounting, method in _METHODS:
        cells = [number(mine[accounting, method, r]["error"], 3) for r in ranks]
        table.add_row(accounting, method, *cells)
    print_table(table, f"{task}: relative squared error of the full fine-tune's ΔW")
    own = [pair for pair in pairs if pair["task"] == task]
    by_pair: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pair in own:
        by_pair.setdefault((pair["first"], pair["second"]), []).append(pair)
    table = Table("pair", "forecast", "winner by r", "right", box=None, pad_edge=False)
    for (first, second), found in by_pair.items():
        forecast = ", ".join(dict.fromkeys(one["forecast"] for one in found))
        won = ", ".join(one["winner"] + "*" * one["clear"] for one in found)
        right = f"{sum(one['right'] for one in found)} of {len(found)}"
        table.add_row(f"{first} / {second}", forecast, won, right)
    clear = [one for one in own if one["clear"]]
    counts = [f"{sum(one['right'] for one in some)} of {len(some)}" for some in (own, clear)]
    note = "* the 95% interval of the difference, paired by seed, excludes 0\n"
    note += f"the forecast is right in {counts[0]} comparisons and in {counts[1]} marked *"
    print_table(table, f"{task}: winner by retained energy, and by metric", note)


if __name__ == "__main__":
    main(prog_name="python -m experiments.theory_to_practice")

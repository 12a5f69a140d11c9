"""Does reconstruction error predict which adapter wins?

From the increments ΔW of a full fine-tune follows how much of their energy each method could keep
at a budget, and with it a forecast of which one should reach most. Beside it stands what the
methods reach. The runs are those of the budgets; what is there already is not run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from experiments.budgets import sweep
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number
from experiments.finetuning.protocol import Row
from experiments.finetuning.session import Finished, Session
from experiments.finetuning.statistics import interval, summary
from experiments.finetuning.training import HIGHER_IS_BETTER
from loca_theory.plotting import draw_prediction

# Which reconstruction an adapter is at its best, and how it is counted.
BEST_OF = {
    "lora": ("paper", "R"),
    "fourierft": ("trainable", "FourierFT"),
    "loca-v1": ("trainable", "FourierFT"),
    "loca": ("trainable", "D"),
    "loca-charged": ("paper", "D"),
    "loca-reselect": ("trainable", "D"),
}
_CURVES = (("paper", "R"), ("paper", "D"), ("paper", "F3"), ("paper", "S"), ("trainable", "D"),
           ("trainable", "S"), ("trainable", "FourierFT"))  # fmt: skip


def forecasts(done: Sequence[Finished]) -> tuple[list[Row], list[Row]]:
    """Errors of the full fine-tunes, and a row a method and budget with forecast and outcome.

    Returns:
        ``errors``: mean, over seeds, of each curve's relative squared error, with its interval;
        ``methods``: ``kept_energy`` beside the summary of the runs.
    """
    by_curve: dict[tuple[str, str, int], list[float]] = {}
    task = done[0].cell.task
    for one in done:
        for entry in one.result.get("increments", {}).get("errors", []):
            key = (entry["accounting"], entry["curve"], entry["r"])
            by_curve.setdefault(key, []).append(entry["error"])
    errors = [
        {
            "task": task,
            "accounting": accounting,
            "curve": curve,
            "r": r,
            **dict(zip(("error", "low", "high"), interval(found), strict=True)),
            "seeds": len(found),
        }
        for (accounting, curve, r), found in by_curve.items()
    ]
    lines = summary([one.row for one in done], ("task", "method", "r"))
    methods = [
        {**line, "kept_energy": 1 - interval(by_curve[*BEST_OF[line["method"]], line["r"]])[0]}
        for line in lines
        if line["method"] in BEST_OF and line["mean"] is not None
    ]
    return errors, methods


def agreement(methods: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """For each pair of methods and budget: who should win, who does, and by how much.

    A pair whose forecasts are equal is left out. ``right`` is the share of budgets whose winner,
    by mean over seeds, was forecast.
    """
    at = {(line["method"], line["r"]): line for line in methods}
    found = []
    for first, second in combinations(names, 2):
        if BEST_OF[first] == BEST_OF[second]:
            continue
        for r in sorted({line["r"] for line in methods}):
            if (first, r) not in at or (second, r) not in at:
                continue
            a, b = at[first, r], at[second, r]
            sign = 1 if HIGHER_IS_BETTER[a["measure"]] else -1
            forecast, outcome = a["kept_energy"] - b["kept_energy"], sign * (a["mean"] - b["mean"])
            found.append(
                {
                    "task": a["task"],
                    "first": first,
                    "second": second,
                    "r": r,
                    "forecast": first if forecast > 0 else second,
                    "winner": first if outcome > 0 else second,
                    "kept_difference": forecast,
                    "metric_difference": outcome,
                    "right": (forecast > 0) == (outcome > 0),
                }
            )
    return found


@session_command
@click.option("--task", help="text, vision or generation.  [default: vision; all with --full]")
def main(session: Session, task: str | None) -> None:
    """Compare forecasts from a full fine-tune's increments with what adapters reach.

    Example: python -m experiments.theory_to_practice --seeds 10
    """
    chosen = [task] if task else ["vision", "text", "generation"] if session.full else ["vision"]
    errors: list[Row] = []
    methods: list[Row] = []
    pairs: list[Row] = []
    for name in chosen:
        own_errors, own_methods = forecasts(sweep(session, name))
        errors += own_errors
        methods += own_methods
        pairs += agreement(own_methods, tuple(BEST_OF))
    session.store("theory_practice", {"": methods, "errors": errors, "pairs": pairs})
    session.draw(lambda: draw_prediction(methods), "theory_practice")
    for name in chosen:
        _print(name, errors, pairs)


def _print(task: str, errors: Sequence[Row], pairs: Sequence[Row]) -> None:
    console = Console(width=110)
    mine = {(e["accounting"], e["curve"], e["r"]): e for e in errors if e["task"] == task}
    ranks = sorted({key[2] for key in mine})
    table = Table(
        "counted", "curve", *(f"r = {r}" for r in ranks), box=None, pad_edge=False,
        title=f"{task}: relative squared error of the full fine-tune's ΔW", title_justify="left",
    )  # fmt: skip
    for accounting, curve in _CURVES:
        cells = [number(mine[accounting, curve, r]["error"], 3) for r in ranks]
        table.add_row(accounting, curve, *cells)
    console.print(table)
    own = [pair for pair in pairs if pair["task"] == task]
    by_pair: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for pair in own:
        by_pair.setdefault((pair["first"], pair["second"]), []).append(pair)
    table = Table(
        "pair", "forecast", "won, by r", "right", box=None, pad_edge=False,
        title="who should win, and who does", title_justify="left",
    )  # fmt: skip
    for (first, second), found in by_pair.items():
        forecast = ", ".join(dict.fromkeys(one["forecast"] for one in found))
        won = ", ".join(one["winner"] for one in found)
        right = f"{sum(one['right'] for one in found)} of {len(found)}"
        table.add_row(f"{first} / {second}", forecast, won, right)
    console.print(table)
    console.print(f"forecast right in {sum(one['right'] for one in own)} of {len(own)} comparisons")


if __name__ == "__main__":
    main(prog_name="python -m experiments.theory_to_practice")

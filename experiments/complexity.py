"""The paper's table ``complexity``: time per step and memory of LoCA's forms, FourierFT and LoRA.

By default a model of MiniLM's shape is measured. ``--full`` adds the paper's models RoBERTa-base
and ViT-base. The rows ``LoCA sparse`` and ``LoCA dense`` of the stored table are of commit 1757e55,
the last that had the paper's other two forms of ΔW: a run keeps them as they are. Needs
``pip install 'loca-theory[experiments]'``; takes some minutes, with ``--full`` many more.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
from rich.table import Table

from experiments.finetuning.methods import peft
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.session import Session
from experiments.paper import load

_ROUNDS = 7
# The paper's names of the forms.
_PRINTED = {
    "LoRA": "LoRA",
    "FourierFT": "FourierFT",
    "LoCA materialised": "LoCA-2",
}
_FORMER = ("LoCA sparse", "LoCA dense")
_OURS = "MiniLM"
_QUICK = ("LoRA", "LoCA")


@session_command
def main(session: Session) -> None:
    """Measure speed and memory, and print them next to the paper's table.

    Example: python -m experiments.complexity --full
    """
    peft()  # fails with a clear message if PEFT, which the benchmark imports, is missing
    layer = import_module("benchmarks.layer")
    rows: list[dict[str, Any]] = []
    for model in layer.MODELS:
        if not session.full and not model.name.startswith(_OURS):
            continue
        session.say(f"measuring {model}")
        rivals = _QUICK if session.quick else layer.MODEL_RIVALS
        rounds = 2 if session.quick else _ROUNDS
        found = layer.measure(model, session.resolved_device, rounds, rivals)
        rows += [
            {
                "model": model.name.split(",")[0],
                "load": str(model),
                "rival": row["rival"],
                "printed_as": _PRINTED.get(row["rival"]),
                "steps_per_s": row["steps_per_s"],
                "of_lora": row["of_lora"],
                "peak_mib": row["peak_mib"],
                "device": session.resolved_device,
            }
            for row in found
        ]
    session.store("complexity", {"": rows + _former(session.folder / "complexity.parquet")})
    _print(rows)


def _former(stored: Path) -> list[dict[str, Any]]:
    """The stored rows of the forms that the package no longer has."""
    if not stored.exists():
        return []
    found = pd.read_parquet(stored)
    rows: Any = found[found["rival"].isin(_FORMER)].to_dict("records")
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    paper = load("complexity")
    for task in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == task]
        printed = {
            row.method: row.values  # noqa: PD011  (a row of the paper)
            for row in paper.rows
            if row.model == (task if task != _OURS else "RoBERTa-base")
        }
        like = "of LoRA, printed" + ("" if task != _OURS else " (RoBERTa-base)")
        table = Table(box=None, pad_edge=False)
        for name in ("method", "in the paper", "steps/s", "of LoRA", like, "peak MiB"):
            table.add_column(
                name, justify="left" if name in ("method", "in the paper") else "right"
            )
        for row in mine:
            speed = _speed(printed.get(row["printed_as"] or ""), printed["LoRA"])
            cells = (number(value, 2) for value in (row["steps_per_s"], row["of_lora"], speed))
            table.add_row(row["rival"], row["printed_as"] or "", *cells, f"{row['peak_mib']:.0f}")
        print_table(table, mine[0]["load"])


def _speed(values: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
    return None if values is None else float(values["speed"]) / float(reference["speed"])


if __name__ == "__main__":
    main(prog_name="python -m experiments.complexity")

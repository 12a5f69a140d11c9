"""The paper's table ``complexity``: time per step and memory of LoCA's forms, FourierFT and LoRA.

By default a model of MiniLM's shape is measured. ``--full`` adds the paper's models RoBERTa-base
and ViT-base. The rows ``LoCA sparse`` and ``LoCA dense`` of the stored table are of commit 1757e55,
the last that had the paper's other two forms of ΔW: a run keeps them as they are. Needs
``pip install 'loca-theory[experiments]'``; takes some minutes, with ``--full`` many more.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click
from pyarrow import parquet

from experiments.finetuning.adaptation import require_peft
from experiments.finetuning.commands import session_command
from experiments.finetuning.session import Session

# The paper's names of the forms.
_PRINTED = {"LoRA": "LoRA", "FourierFT": "FourierFT", "LoCA materialised": "LoCA-2"}
_FORMER = ("LoCA sparse", "LoCA dense")
_MEASURED = ("steps_per_s", "of_lora", "peak_mib")


@session_command
def main(session: Session) -> None:
    """Measure speed and memory as in the paper's table; the ledger compares the two.

    Example: python -m experiments.complexity --full
    """
    run_in(session)


def run_in(session: Session) -> None:
    """Measure the models of a session, and store the table."""
    require_peft()  # fails with a clear message if PEFT, which the benchmark imports, is missing
    layer = import_module("benchmarks.layer")
    rounds, rivals = (2, ("LoRA", "LoCA")) if session.quick else (7, layer.MODEL_RIVALS)
    rows: list[dict[str, Any]] = []
    for model in layer.MODELS:
        name = model.name.split(",")[0]
        if session.full or name.startswith("MiniLM"):
            session.say(f"measuring {model}")
            table = layer.measure(model, session.resolved_device, rounds, rivals)
            for row in table:
                measured = {column: row[column] for column in _MEASURED}
                fields = {"model": name, "load": str(model), "rival": row["rival"]}
                fields["printed_as"] = _PRINTED.get(row["rival"])
                rows.append({**fields, **measured, "device": session.resolved_device})
                click.echo(
                    f"{name}, {row['rival']}: "
                    + ", ".join(f"{column} {value:.2f}" for column, value in measured.items())
                )
    stored = session.folder / "complexity.parquet"
    if stored.exists():
        former = parquet.read_table(stored).to_pylist()
        rows += [row for row in former if row["rival"] in _FORMER]
    session.store("complexity", {"": rows})


if __name__ == "__main__":
    main(prog_name="python -m experiments.complexity")

"""The paper's table ``complexity``: time per step and memory of LoCA's forms, FourierFT and LoRA.

By default a model of MiniLM's shape is measured. ``--full`` adds the paper's models RoBERTa-base
and ViT-base. The rows ``LoCA sparse`` and ``LoCA dense`` of the stored table are of commit 1757e55,
the last that had the paper's other two forms of ΔW: a run keeps them as they are. Needs
``pip install 'loca-theory[experiments]'``; takes some minutes, with ``--full`` many more.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pyarrow import parquet

from experiments.finetuning.adaptation import peft
from experiments.finetuning.printing import number, print_table
from experiments.finetuning.session import Session, session_command
from experiments.paper import load

# The paper's names of the forms.
_PRINTED = {"LoRA": "LoRA", "FourierFT": "FourierFT", "LoCA materialised": "LoCA-2"}
_FORMER = ("LoCA sparse", "LoCA dense")
_MEASURED = ("steps_per_s", "of_lora", "peak_mib")


@session_command
def main(session: Session) -> None:
    """Measure speed and memory, and print them next to the paper's table.

    Example: python -m experiments.complexity --full
    """
    peft()  # fails with a clear message if PEFT, which the benchmark imports, is missing
    layer = import_module("benchmarks.layer")
    rounds, rivals = (2, ("LoRA", "LoCA")) if session.quick else (7, layer.MODEL_RIVALS)
    rows: list[dict[str, Any]] = []
    paper = load("complexity").rows
    for model in layer.MODELS:
        name = model.name.split(",")[0]
        if session.full or name.startswith("MiniLM"):
            session.say(f"measuring {model}")
            found = layer.measure(model, session.resolved_device, rounds, rivals)
            like = "RoBERTa-base" if name.startswith("MiniLM") else name
            printed = {one.method: dict(one.values) for one in paper if one.model == like}
            own = [
                {
                    "model": name,
                    "load": str(model),
                    "rival": row["rival"],
                    "printed_as": _PRINTED.get(row["rival"]),
                    **{column: row[column] for column in _MEASURED},
                    "device": session.resolved_device,
                }
                for row in found
            ]
            _print(own, printed)
            rows += own
    stored = session.folder / "complexity.parquet"
    if stored.exists():
        former = parquet.read_table(stored).to_pylist()
        rows += [row for row in former if row["rival"] in _FORMER]
    session.store("complexity", {"": rows})


def _print(rows: list[dict[str, Any]], paper: dict[str, Any]) -> None:
    """Print the rows of a model beside the paper's; MiniLM's beside those of RoBERTa-base."""
    lines = []
    for row in rows:
        name = row["printed_as"] or ""
        speed = paper[name]["speed"] / paper["LoRA"]["speed"] if name in paper else None
        cells = (number(value, 2) for value in (row["steps_per_s"], row["of_lora"], speed))
        lines.append((row["rival"], name, *cells, f"{row['peak_mib']:.0f}"))
    headings = ("steps/s", "of LoRA", "of LoRA, printed", "peak MiB")
    print_table(rows[0]["load"], ("method", "in the paper"), headings, lines)


if __name__ == "__main__":
    main(prog_name="python -m experiments.complexity")

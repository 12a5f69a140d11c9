"""Run all fine-tuning experiments, one after the other.

``python -m experiments.everything`` compares the main methods on the small tasks, in some 45
minutes on two cores; with ``--full`` it runs everything, in some hours, and ``--quick`` checks in
minutes that everything works. It can be stopped at any time and resumes when it is started again.
"""

from __future__ import annotations

import time
from importlib import import_module

from experiments.design import store_verdicts
from experiments.finetuning.commands import session_command
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.session import Session

# The order matters: later experiments use runs of earlier ones.
MAIN = ("study comparison",)
# These run only with --full or --quick.
FURTHER = (
    "study ablation",
    "study training_process",
    "study many_tasks",
    "study budgets",
    "study sensitivity",
    "study patterns",
    "complexity",
)


@session_command
def main(session: Session) -> None:
    """Run every fine-tuning experiment.

    Example: python -m experiments.everything --out results
    """
    run_in(session)


def run_in(session: Session) -> None:
    """Run the experiments of a session."""
    start = time.monotonic()
    for line in (*MAIN, *(FURTHER if session.full or session.quick else ())):
        session.say(f"\n== {line} ({(time.monotonic() - start) / 60:.0f} min)")
        name, *words = line.split()
        import_module(f"experiments.{name}").run_in(session, *words)
    if not session.quick:
        session.report_written(store_verdicts(read_runs(session.folder), session.folder))


if __name__ == "__main__":
    main(prog_name="python -m experiments.everything")

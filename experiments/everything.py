"""Run all fine-tuning experiments, one after the other.

``python -m experiments.everything`` compares the main methods on the small tasks, in some 45
minutes on two cores. With ``--full`` it also runs the ablation, the other methods, many random
tasks, the pretrained sentence transformer, all budgets and all settings, in some hours. At the end
it writes the verdicts on the comparisons of the designs whose runs are all there. The command can
be stopped at any time and resumes when it is started again. ``--quick`` checks in minutes that
everything works.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import click

from experiments.design import store_verdicts
from experiments.finetuning.options import session_command
from experiments.finetuning.run_tables import read_runs
from experiments.finetuning.session import Session

# The order matters: later experiments use runs of earlier ones.
MAIN: tuple[tuple[str, dict[str, Any]], ...] = (("comparison", {}),)
# These run only with --full or --quick.
FURTHER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ablation", {}),
    ("training_process", {}),
    ("comparison", {"task": "text", "listed": "loca-v1,loca,loca-reselect"}),
    ("many_tasks", {}),
    ("budgets", {}),
    ("sensitivity", {}),
    ("patterns", {}),
    ("prediction", {}),
    ("low_rank", {}),
    ("complexity", {}),
)


@session_command
@click.pass_context
def main(ctx: click.Context, session: Session) -> None:
    """Run every fine-tuning experiment.

    Example: python -m experiments.everything --out results
    """
    start = time.monotonic()
    for name, options in (*MAIN, *(FURTHER if session.full or session.quick else ())):
        words = " ".join((name.replace("_", " "), *options.values()))
        session.say(f"\n== {words} ({(time.monotonic() - start) / 60:.0f} min)")
        command = import_module(f"experiments.{name}").main
        ctx.invoke(command, **_given(ctx, command), **options)
    if not session.quick:
        session.report_written(store_verdicts(read_runs(session.folder), session.folder))
    session.say(f"\nall done in {(time.monotonic() - start) / 60:.1f} min")


def _given(ctx: click.Context, command: click.Command) -> dict[str, Any]:
    """The values of this command's common options, for another command."""
    names = {parameter.name for parameter in command.params}
    return {name: value for name, value in ctx.params.items() if name in names}


if __name__ == "__main__":
    main(prog_name="python -m experiments.everything")

"""The paper's figure ``visualization_W``: images of the increments that each method learns.

The runs are those of the comparison; runs that are already stored are not repeated.
"""

from __future__ import annotations

import click

from experiments.finetuning.configurations import configurations, described
from experiments.finetuning.methods import find_method
from experiments.finetuning.options import session_command
from experiments.finetuning.session import Session
from experiments.finetuning.settings import task_names

_TASK = "text"
METHODS = ("full", "lora", "fourierft", "loca", "loca-reselect")


@session_command
@click.option("--task", default=_TASK, show_default=True, help=", ".join(task_names()))
def main(session: Session, task: str) -> None:
    """Draw the increments that a full fine-tune, LoRA, FourierFT and LoCA learn.

    Example: python -m experiments.patterns --task digits
    """
    rates = session.tune(configurations(session, task, METHODS), f"patterns, {task}")
    done = session.run_on_all_seeds(rates.items(), f"patterns, {task}", described(session))
    first = session.seeds_of(task)[0]
    found = {
        one.configuration.method: one.result["increments"]["patterns"]
        for one in done
        if one.seed == first and "increments" in one.result
    }
    if not found:
        msg = f"the first run of every method on {task} diverged, so there is nothing to draw"
        raise click.ClickException(msg)
    rows = [
        {"task": task, "method": method, "title": find_method(method).title, "layer": layer,
         "row": number, "values": values}
        for method, pictures in found.items()
        for layer, picture in pictures.items()
        for number, values in enumerate(picture)
    ]  # fmt: skip
    own = "" if task == _TASK else f"-{task}"
    session.store(f"visualization_W{own}", {"": rows})
    session.draw("visualization_W", rows, own)


if __name__ == "__main__":
    main(prog_name="python -m experiments.patterns")

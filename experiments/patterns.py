"""What each method adds to the weights, as pictures: the paper's figure ``visualization_W``.

The runs are those of the comparison; what is there already is not run again.
"""

from __future__ import annotations

import click

from experiments.finetuning.cells import cells, described
from experiments.finetuning.options import session_command
from experiments.finetuning.session import Session
from loca_theory.plotting import draw_patterns

_TASK = "text"
METHODS = ("full", "lora", "fourierft", "loca", "loca-reselect")


@session_command
@click.option("--task", default=_TASK, show_default=True, help="text, vision or generation.")
def main(session: Session, task: str) -> None:
    """Draw the increments that a full fine-tune, LoRA, FourierFT and LoCA learn.

    Example: python -m experiments.patterns --task vision
    """
    rates = session.tuned(cells(session, task, METHODS), f"patterns, {task}")
    done = session.repeated(rates.items(), f"patterns, {task}", described(session))
    first = session.seeds_of(task)[0]
    found = {
        one.cell.method: one.result["increments"]["patterns"]
        for one in done
        if one.run.parameters["seed"] == first and "increments" in one.result
    }
    if not found:
        msg = f"every first run on {task} diverged, so there is nothing to show"
        raise click.ClickException(msg)
    rows = [
        {"task": task, "method": method, "layer": layer, "row": number, "values": values}
        for method, pictures in found.items()
        for layer, picture in pictures.items()
        for number, values in enumerate(picture)
    ]
    name = "visualization_W" if task == _TASK else f"visualization_W-{task}"
    session.store(name, {"": rows})
    session.draw(lambda: draw_patterns(rows), name)


if __name__ == "__main__":
    main(prog_name="python -m experiments.patterns")

"""The paper's figure ``training_process``: training curves with learned and fixed locations.

The runs are those of the comparison and the ablation; runs that are already stored are not
repeated.
"""

from __future__ import annotations

from experiments.finetuning.configurations import configurations, described, tasks_of
from experiments.finetuning.options import session_command
from experiments.finetuning.session import Session

METHODS = ("loca-v1", "loca", "loca-reselect")


@session_command
def main(session: Session) -> None:
    """Draw validation loss and metric over the steps, with and without the location search.

    Example: python -m experiments.training_process --out results
    """
    lines = []
    for task in tasks_of(session, None):
        rates = session.tune(configurations(session, task, METHODS), f"training process, {task}")
        done = session.run_on_all_seeds(
            rates.items(), f"training process, {task}", described(session)
        )
        lines += [line for one in done for line in one.curve]
    session.store("training_process", {"": lines})
    session.draw("training_process", lines)


if __name__ == "__main__":
    main(prog_name="python -m experiments.training_process")

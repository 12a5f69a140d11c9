"""The paper's figure ``parameter_sen``: sensitivity of LoCA to α, B_s and the learning rates.

As in the paper, one setting is varied while the others stay fixed. Needs
``pip install 'loca-theory[experiments]'``.
"""

from __future__ import annotations

import click

from experiments.finetuning.configurations import TASKS, described, tasks_of
from experiments.finetuning.methods import find_method
from experiments.finetuning.options import session_command
from experiments.finetuning.printing import print_summary
from experiments.finetuning.protocol import Configuration, Row
from experiments.finetuning.session import Session
from experiments.finetuning.statistics import summary

SCALINGS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
ALTERNATING = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
LOCATION_RATES = (1e-4, 1e-3, 5e-3, 2e-2, 1e-1)
LABELS = {
    "scaling": r"scaling $\alpha$",
    "alternating": r"$\mathcal{B}_s$, fraction of all steps",
    "rate": "learning rate of coefficients",
    "location_rate": "learning rate of locations",
}
# The fraction of alternating steps is swept for both, all other settings for the paper's LoCA only.
METHODS = ("loca", "loca-reselect")


def sweep(session: Session, task: str) -> list[Row]:
    """Vary one setting at a time; each row has the name and the value of the setting."""
    r = session.settings(task)["r"]
    plain = {name: Configuration(task, name, r) for name in METHODS}
    rates = session.tune(list(plain.values()), f"sensitivity, {task}")
    rate_of = {name: rates[configuration] for name, configuration in plain.items()}
    wanted: list[tuple[str, float, Configuration, float]] = []
    for name in METHODS:
        wanted += [
            (
                "alternating",
                value,
                Configuration(task, name, r, {"alternating": value}),
                rate_of[name],
            )
            for value in _some(session, ALTERNATING)
            if name == "loca" or _lasts(session, task, value)
        ]
    for value in _some(session, SCALINGS):
        configuration = (
            Configuration(task, "loca", r, {"scaling": value}) if value != 1 else plain["loca"]
        )
        wanted.append(("scaling", value, configuration, rate_of["loca"]))
    for value in _some(
        session, find_method("loca").rates(session.settings(task)["grid"], beyond=1)
    ):
        wanted.append(("rate", value, plain["loca"], value))
    for value in _some(session, LOCATION_RATES):
        configuration = Configuration(task, "loca", r, location_rate=value)
        wanted.append(("location_rate", value, configuration, rate_of["loca"]))
    rated = [(configuration, rate) for *_, configuration, rate in wanted]
    done = session.run_on_all_seeds(rated, f"sensitivity, {task}", described(session))
    labels = [entry[:2] for entry in wanted for _ in session.seeds_of(task)]
    return [
        {**one.row, "setting": setting, "label": LABELS[setting], "value": value}
        for (setting, value), one in zip(labels, done, strict=True)
    ]


def _some(session: Session, values: tuple[float, ...]) -> tuple[float, ...]:
    return values[1:3] if session.quick else values


def _lasts(session: Session, task: str, fraction: float) -> bool:
    """Whether components are pruned and regrown at least once in this fraction of the steps."""
    chosen = session.settings(task)
    period = chosen["coefficient_steps"] + chosen["location_steps"]
    return fraction == 0 or round(fraction * chosen["steps"]) >= period


@session_command
@click.option("--task", help=TASKS)
def main(session: Session, task: str | None) -> None:
    """Sweep α, B_s and the learning rates one at a time.

    Example: python -m experiments.sensitivity --task digits --seeds 16
    """
    rows = [row for one in tasks_of(session, task) for row in sweep(session, one)]
    lines = summary(rows, ("task", "setting", "label", "value", "method"))
    own = f"-{task}" if task else ""
    session.store(f"sensitivity{own}", {"": rows, "summary": lines})
    session.draw("parameter_sen", lines, own)
    for one, setting in dict.fromkeys((line["task"], line["setting"]) for line in lines):
        print_summary(
            [line for line in lines if (line["task"], line["setting"]) == (one, setting)],
            title=f"{session.settings(one)['title']}: {setting}",
            columns=("value", "method"),
        )


if __name__ == "__main__":
    main(prog_name="python -m experiments.sensitivity")

"""``loca-theory toy``: how often searches solve the paper's toy problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from loca_theory.cli.options import PARTIAL_RESULTS, Common, command_of
from loca_theory.cli.output import emit
from loca_theory.cli.ranges import NameList
from loca_theory.cli.stores import open_store, running, write_result
from loca_theory.convergence.interpretations import DEFAULT_INTERPRETATION, INTERPRETATIONS

if TYPE_CHECKING:
    from loca_theory.convergence import ToyResult

_PRINTED = "gaussian"
# What each interpretation changes.
_CHANGES = {
    "default": "none of the following",
    "standard-deviation": "20 and 0.2 are standard deviations, not variances",
    "mean-of-samples": "squared errors are averaged over samples only",
    "sum": "squared errors are summed",
    "indices": "locations are not scaled to [0, 1]",
    "zero-border": "Z is 0 beyond the spectrum",
    "one-sided-border": "differences are one-sided at the border",
    "overwrite": "of components at one location, only the last counts",
    "half-period": "phases of 5 steps, not 10",
    "never-frozen": "locations move in all steps, not half",
}


@command_of(
    "convergence.study:toy",
    out="Folder for the tables, their manifests (settings and versions, as JSON), the figures and "
    f"{PARTIAL_RESULTS}",
    rare=("interpretations", "conditions", "components", "lr", "location_lr", "seed"),
    searches={
        "flag": "--search",
        "help": "Searches to run, or 'help' to list them.  [default: all]",
    },
    interpretations={
        "flag": "--interpretation",
        "default": DEFAULT_INTERPRETATION,
        "help": "Interpretations of what the paper's description leaves open: 'all', or some of "
        f"{'; '.join(f'{name} ({_CHANGES[name]})' for name in INTERPRETATIONS)}. A+B combines two.",
    },
    sizes={"flag": "--size"},
    conditions={
        "flag": "--condition",
        "type": NameList(),
        "default": _PRINTED,
        "metavar": "LIST",
        "help": "Condition numbers of the fixed weight matrices; 1: orthogonal matrices; gaussian: "
        "Gaussian matrices, as in the paper.",
    },
    lr={"default": 0.02},
    location_lr={"default": 0.05},
)
def command(
    *,
    common: Common,
    searches: tuple[str, ...] | None,
    interpretations: tuple[str, ...],
    sizes: tuple[int, ...],
    components: tuple[int, ...],
    conditions: tuple[str, ...],
    problems: int | None,
    steps: int,
    lr: float,
    location_lr: float,
) -> None:
    """Measure how often training finds the locations that generated the paper's toy data.

    The data come from a weight change with a few DCT coefficients, whose locations each search has
    to find.

    \b
    Examples:
      loca-theory toy --problems 2000 --search central,swap
      loca-theory toy --search central,reselect --interpretation all
      loca-theory toy --size 6,16,32,64,128 --condition 1,10,gaussian
    """
    chosen_conditions = tuple(dict.fromkeys(_condition(text) for text in conditions))
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.convergence.searches import SEARCHES
    from loca_theory.convergence.state import Rates
    from loca_theory.convergence.study import ConvergenceStudy

    if searches == ("help",):
        for name, kind in SEARCHES.items():
            click.echo(f"{name:<18} {kind.title}")
        return
    study = ConvergenceStudy(
        searches=tuple(SEARCHES) if searches is None or "all" in searches else searches,
        interpretations=INTERPRETATIONS if "all" in interpretations else interpretations,
        sizes=sizes,
        components=components,
        conditions=chosen_conditions,
        problems=problems,
        steps=steps,
        rates=Rates(lr, location_lr),
        seed=common.seed,
    )
    with running(common, open_store(common), "searching") as runner:
        result = study.run(runner)
    if common.out:
        write_result(result, common)
    document = {"rows": result.to_json()["rows"], "manifest": result.manifest}
    emit(document, lambda: _print(result), common)


def _print(result: ToyResult) -> None:
    from loca_theory.cli.toy_tables import print_recovery

    print_recovery(result.rows)


def _condition(text: str) -> float | None:
    if text == _PRINTED:
        return None
    try:
        return float(text)
    except ValueError:
        msg = f"--condition takes numbers of at least 1, or {_PRINTED}, not {text!r}"
        raise click.UsageError(msg) from None

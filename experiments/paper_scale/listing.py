"""List the experiments, their settings, and what is not run."""

from __future__ import annotations

import click

from experiments.finetuning.methods import Method, methods
from experiments.paper_scale.settings import Choice, Family, families, resolve, seeds
from loca_theory.errors import InvalidArgumentError


def show() -> None:
    """Print every family: models, data, settings of LoCA, requirements of the other methods."""
    for family in families().values():
        click.echo(f"{family.name}: {family.title}")
        for size, model in family.sizes.items():
            click.echo(f"  --model-size {size}: {model.model}")
        for task, data in family.tasks.items():
            click.echo(f"  {task}: {data.data}{f' ({data.config})' if data.config else ''}")
        click.echo(f"  seeds: {', '.join(map(str, seeds(family)))}")
        alike: dict[str, list[str]] = {}
        for task in family.tasks:
            for size in family.sizes:
                alike.setdefault(_settings(family, task, size), []).append(f"{task} {size}")
        for settings, of in alike.items():
            click.echo(f"  LoCA, {', '.join(of) if len(alike) > 1 else 'all'}: {settings}")
        needs = {name: _needs(family, method) for name, method in methods().items()}
        ready = [name for name, lacking in needs.items() if not lacking]
        click.echo(f"  with the paper's settings: {', '.join(ready) or 'none'}")
        for name, lacking in needs.items():
            if lacking and (methods()[name].kind != "loca" or name == "loca"):
                click.echo(f"  {name}: {lacking}")
        for reason in family.not_run:
            click.echo(f"  not run: {reason}")
        click.echo()
    click.echo(
        "The paper states no gradient clipping. All runs clip the gradient of each group of "
        "parameters (of a method, the head; decayed or not) to a norm of 1."
    )


def _settings(family: Family, task: str, size: str) -> str:
    """The settings of LoCA as one line."""
    try:
        found = resolve(Choice(family, task, size, "loca"))
        components = f"{found.components} components"
    except InvalidArgumentError:
        found = resolve(Choice(family, task, size, "loca", components=1))
        components = "components not stated"
    length = f"{found.steps} steps" if found.steps else f"epochs {found.epochs:g}"
    batch = f"batch {found.batch_size}"
    if found.accumulation > 1:
        batch += f" x {found.accumulation}"
    head = f", head {found.head_rate:g}" if family.head else ""
    rates = f"rate {found.rate:g}{head}, locations {found.location_rate:g}"
    search = f"scaling {found.scaling:g}, B_s {found.alternating_steps}"
    return f"{components}, {search}, {rates}, decay {found.weight_decay:g}, {batch}, {length}"


def _needs(family: Family, method: Method) -> str:
    """What the user must specify for a method, or why it is not run; empty if nothing."""
    if method.kind == "not-run":
        return f"not run: {method.reason}"
    try:
        resolve(Choice(family, next(iter(family.tasks)), next(iter(family.sizes)), method.name))
    except InvalidArgumentError as error:
        return str(error)
    return ""

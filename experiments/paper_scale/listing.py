"""List the experiments, their settings, and what is not run."""

from __future__ import annotations

import click

from experiments.finetuning.methods import Method, methods
from experiments.paper_scale.settings import Choice, resolve, seeds
from experiments.paper_scale.sources import Family, families
from loca_theory.errors import InvalidArgumentError


def show() -> None:
    """Print every family: models, data, settings of LoCA, requirements of the other methods."""
    for family in families().values():
        click.echo(f"{family.name}: {family.title}")
        for size, model in family.sizes.items():
            click.echo(f"  --model-size {size}: {model.model}")
        for task, data in family.tasks.items():
            config = f" ({data.config})" if data.config else ""
            click.echo(f"  {task}: {data.data}{config}")
        click.echo(f"  seeds: {', '.join(map(str, seeds(family)))}")
        _show_settings(family)
        ready = [m.name for m in methods().values() if not _needs(family, m)]
        click.echo(f"  with the paper's settings: {', '.join(ready) or 'none'}")
        for method in methods().values():
            needs = _needs(family, method)
            if needs and (method.kind != "loca" or method.name == "loca"):
                click.echo(f"  {method.name}: {needs}")
        for reason in family.not_run:
            click.echo(f"  not run: {reason}")
        click.echo()
    click.echo(
        "The paper states no gradient clipping. All runs clip the gradient of each group of "
        "parameters (of a method, the head; decayed or not) to a norm of 1."
    )


def _show_settings(family: Family) -> None:
    """Print the settings of LoCA, once for all tasks and sizes that share them."""
    alike: dict[str, list[str]] = {}
    for task in family.tasks:
        for size in family.sizes:
            alike.setdefault(_settings(family, task, size), []).append(f"{task} {size}")
    everything = len(family.tasks) * len(family.sizes)
    for settings, paths in alike.items():
        where = "all" if len(paths) == everything else ", ".join(paths)
        click.echo(f"  LoCA, {where}: {settings}")


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
    return (
        f"{components}, scaling {found.scaling:g}, B_s {found.alternating_steps}, rate "
        f"{found.rate:g}{head}, locations {found.location_rate:g}, "
        f"decay {found.weight_decay:g}, {batch}, {length}"
    )


def _needs(family: Family, method: Method) -> str:
    """What the user must specify for a method, or why it is not run; empty if nothing."""
    if method.kind == "not-run":
        return f"not run: {method.reason}"
    task, size = next(iter(family.tasks)), next(iter(family.sizes))
    try:
        resolve(Choice(family, task, size, method.name))
    except InvalidArgumentError as error:
        return str(error)
    return ""

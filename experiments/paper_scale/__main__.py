"""``python -m experiments.paper_scale``: the paper's experiments at full size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from experiments.finetuning.methods import Method, methods
from experiments.paper_scale.loading import package
from experiments.paper_scale.settings import Choice, Family, families, resolve, seeds
from loca_theory.cli.command import Command, Group
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError

_POSITIVE = click.IntRange(min=1)
_SHARED = (
    click.Option(["--method"], default="loca", show_default=True, help="Fine-tuning method."),
    click.Option(["--seed"], type=click.IntRange(0, 2**32 - 1), multiple=True,
                 help="May be given several times; default: the paper's seeds, or 0."),
    click.Option(["--r"], type=_POSITIVE,
                 help="Rank of LoRA, whose budget other methods get; default: the paper's."),
    click.Option(["--components"], type=_POSITIVE,
                 help="Components of FourierFT and LoCA per layer."),
    click.Option(["--lr"], type=click.FloatRange(min=0, min_open=True),
                 help="Learning rate; default: the paper's, if it states one."),
    click.Option(["--batch-size"], type=_POSITIVE, help="Default: the paper's."),
    click.Option(["--max-steps"], type=_POSITIVE, help="Default: the paper's."),
    click.Option(["--save-every"], type=_POSITIVE, default=500, show_default=True,
                 help="Steps from one checkpoint to the next."),
    click.Option(["--model"], help="A folder, or another name on the hub."),
    click.Option(["--data"], help="A folder with a file or a folder for each part."),
    click.Option(["--out"], type=Folder(file_okay=False), default=Choice.out, show_default=True,
                 help="Folder of the results."),
)  # fmt: skip
_OWN = {
    "e2e": [click.Option(["--texts"], type=click.IntRange(min=0),
                         help="Number of texts to write; default: all.")],
    "instruct": [click.Option(["--questions"],
                              type=click.Path(exists=True, dir_okay=False, path_type=Path),
                              help="Questions of MT-Bench or Vicuna to answer, in the format of "
                              "LLM-as-a-judge.")],
    "diffusion": [click.Option(["--samples"], type=click.IntRange(min=0), default=4,
                               show_default=True,
                               help="Number of unseen photographs to edit afterwards."),
                  click.Option(["--resolution"], type=click.IntRange(min=8),
                               help="Width and height in pixels.")],
}  # fmt: skip


@click.group(cls=Group)
def main() -> None:
    """Run the paper's experiments with its settings; needs a GPU and access to the hub."""


@main.command("list", cls=Command)
def list_command() -> None:
    """List the experiments and their settings, and what is not run and why.

    Example: python -m experiments.paper_scale list
    """
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


def _command(family: Family) -> click.Command:
    """The command that runs a family of experiments."""
    tasks = list(family.tasks)
    only = {"required": True} if tasks[1:] else {"default": tasks[0], "show_default": True}
    sizes = ", ".join(family.sizes)

    def call(*, task: str, model_size: str, seed: tuple[int, ...], **asked: Any) -> None:
        own = {one.name: asked.pop(str(one.name)) for one in _OWN.get(family.name, ())}
        chosen = [
            Choice(family, task, model_size, seed=one, own=own, **asked)
            for one in seed or seeds(family)
        ]
        for note in resolve(chosen[0]).notes:
            click.echo(f"note: {note}", err=True)
        for name in ("transformers", "datasets", "accelerate"):
            package(name)
        from experiments.paper_scale.run import run  # needs them

        for choice in chosen:
            row, computed = run(choice)
            line = f"{row['task']}, {row['size']}, {row['method']}, seed {row['seed']}: "
            if row["diverged"]:
                line += f"diverged after {row['steps']} steps"
            else:
                line += f"{row['metric']} {row['value']:.4g} after {row['steps']} steps, "
                line += f"{row['trained']:,} trained parameters besides the head"
            click.echo(line + ("" if computed else " (stored)"))

    return Command(
        family.name,
        callback=call,
        params=[
            click.Option(["--task"], help=f"{', '.join(tasks)}.", **only),
            click.Option(
                ["--model-size"], default=next(iter(family.sizes)), show_default=True, help=sizes
            ),
            *_OWN.get(family.name, ()),
            *_SHARED,
        ],
        help=f"Fine-tune: {family.title}.\n\nExample: python -m experiments.paper_scale "
        f"{family.name} {family.example}",
    )


for one in families().values():
    main.add_command(_command(one))


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper_scale")

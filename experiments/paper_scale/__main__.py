"""``python -m experiments.paper_scale``: the paper's experiments at full size."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import click

from experiments.finetuning.methods import methods
from experiments.paper_scale.settings import KINDS, Choice, Family, families, resolve, seeds
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError, ResourceError

_POSITIVE, _COUNT = click.IntRange(min=1), click.IntRange(min=0)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_option = partial(click.option, show_default=True)


@click.command(cls=Command)
@click.argument("name", metavar="NAME", type=click.Choice(["list", *families()]))
@click.option("--task", help="Default: the first shown by `list`.")
@click.option("--model-size", help="Default: the first shown by `list`.")
@_option("--method", default="loca", help="Fine-tuning method.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    multiple=True,
    help="May be given several times; default: the paper's seeds, or 0.",
)
@click.option("--r", type=_POSITIVE, help="Rank of LoRA and DoRA; default: the paper's.")
@click.option(
    "--components",
    type=_POSITIVE,
    help="Components of FourierFT and LoCA per layer; default: the paper's.",
)
@click.option(
    "--lr",
    type=click.FloatRange(min=0, min_open=True),
    help="Learning rate; default: the paper's, if it states one.",
)
@click.option("--batch-size", type=_POSITIVE, help="Default: the paper's.")
@click.option("--max-steps", type=_POSITIVE, help="Default: the paper's.")
@_option("--save-every", type=_POSITIVE, default=500, help="Steps from one checkpoint to the next.")
@click.option("--model", help="A folder, or another name on the hub.")
@click.option("--data", help="A folder or a name on the hub, as datasets.load_dataset reads it.")
@click.option("--texts", type=_COUNT, help="Of e2e: number of texts to write; default: all.")
@click.option(
    "--questions", type=_FILE, help="Of instruct: questions to answer, in LLM-as-a-judge's format."
)
@_option(
    "--samples",
    type=_COUNT,
    default=4,
    help="Of diffusion: number of unseen photographs to edit afterwards.",
)
@_option("--out", type=Folder(file_okay=False), default=Choice.out, help="Folder of the results.")
def main(
    name: str, task: str | None, model_size: str | None, seed: tuple[int, ...], **options: Any
) -> None:
    """Run the experiment NAME of the paper with its settings, or list them all.

    Example: python -m experiments.paper_scale glue --task MRPC --model-size base --method loca
    """
    if name == "list":
        for family in families().values():
            _describe(family)
        return
    try:
        from experiments.paper_scale.run import run
    except ImportError as error:
        raise ResourceError(
            f"{error.name} is not installed: pip install 'loca-theory[paper-scale]'"
        ) from error
    family = families()[name]
    task, model_size = task or next(iter(family.tasks)), model_size or next(iter(family.sizes))
    for run_seed in seed or seeds(family):
        row, is_new = run(Choice(family, task, model_size, seed=run_seed, **options))
        line = f"{task}, {model_size}, {row['method']}, seed {run_seed}: {row['metric']} "
        line += f"{row['value']:.4g} after {row['steps']} steps, {row['trained']:,} trained "
        line += f"parameters besides the head{', diverged' if row['diverged'] else ''}"
        click.echo(line + ("" if is_new else " (stored)"))


def _describe(family: Family) -> None:
    """Print the sources of a family, its settings, and what is not run."""
    click.echo(f"{family.name}: {family.title}")
    for size, model in family.sizes.items():
        click.echo(f"  --model-size {size}: {model['model']}")
    for task, data in family.tasks.items():
        click.echo(f"  {task}: {data.data}{f' ({data.config})' if data.config else ''}")
    click.echo(f"  seeds: {', '.join(map(str, seeds(family)))}")
    kinds = {*KINDS} - {"loca"}
    baselines = [method.name for method in methods().values() if method.kind in kinds]
    runs = [
        *product(["loca"], family.tasks, family.sizes),
        *product(baselines, [*family.tasks][:1], [*family.sizes][:1]),
    ]
    for method, task, size in runs:
        try:
            settings = vars(resolve(Choice(family, task, size, method)))
            said = ", ".join(f"{name} {x}" for name, x in settings.items() if x is not None)
        except InvalidArgumentError as error:  # what the paper does not state
            said = str(error)
        click.echo(f"  {method}, {task} {size}: {said}")
    click.echo("".join(f"  {note}\n" for note in family.notes))


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper_scale")

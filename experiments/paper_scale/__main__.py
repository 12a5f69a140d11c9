"""``python -m experiments.paper_scale``: the paper's experiments at full size."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from experiments.paper_scale.listing import show
from experiments.paper_scale.sources import families
from loca_theory._lookup import find
from loca_theory.cli.command import Group
from loca_theory.cli.options import Folder

_OUT = Path("loca-results") / "paper-scale"


@click.group(cls=Group)
def main() -> None:
    """Run the paper's experiments with its settings; needs a GPU and access to the hub."""


def _shared(size: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator with the options of every family."""
    options = (
        click.option("--model-size", default=size, show_default=True, help="Size of the model."),
        click.option("--method", default="loca", show_default=True, help="Fine-tuning method."),
        click.option("--seed", "seeds", type=click.IntRange(0, 2**32 - 1), multiple=True,
                     help="May be given several times; default: the paper's seeds, or 0."),
        click.option("--r", type=click.IntRange(min=1),
                     help="Rank of LoRA, whose budget other methods get; default: the paper's."),
        click.option("--components", type=click.IntRange(min=1),
                     help="Components of FourierFT and LoCA per layer."),
        click.option("--lr", type=click.FloatRange(min=0, min_open=True),
                     help="Learning rate; default: the paper's, if it states one."),
        click.option("--batch-size", type=click.IntRange(min=1), help="Default: the paper's."),
        click.option("--max-steps", type=click.IntRange(min=1), help="Default: the paper's."),
        click.option("--save-every", type=click.IntRange(min=1), default=500, show_default=True,
                     help="Steps from one checkpoint to the next."),
        click.option("--model", help="A folder, or another name on the hub."),
        click.option("--data", help="A folder with a file or a folder for each part."),
        click.option("--out", type=Folder(file_okay=False), default=_OUT,
                     show_default=True, help="Folder of the results."),
    )  # fmt: skip

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@main.command()
@click.option("--task", required=True, help="CoLA, MNLI, MRPC, QNLI, QQP, RTE, SST-2 or STS-B.")
@_shared("base")
def glue(task: str, **asked: Any) -> None:
    """Fine-tune RoBERTa on a task of GLUE.

    Example: python -m experiments.paper_scale glue --task MRPC --model-size base --method loca
    """
    _run("glue", task, asked)


@main.command()
@click.option("--texts", type=click.IntRange(min=0), help="Number of texts to write; default: all.")
@_shared("medium")
def e2e(texts: int | None, **asked: Any) -> None:
    """Fine-tune GPT-2 on the E2E challenge and write its texts.

    Example: python -m experiments.paper_scale e2e --model-size medium --method loca
    """
    _run("e2e", "E2E", asked, extras={"texts": texts}, files={"texts": texts})


@main.command()
@click.option(
    "--questions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Questions of MT-Bench or Vicuna to answer, in the format of LLM-as-a-judge.",
)
@_shared("llama1-7b")
def instruct(questions: Path | None, **asked: Any) -> None:
    """Fine-tune LLaMA on Alpaca-52K; the judge is not run.

    Example: python -m experiments.paper_scale instruct --method loca --questions question.jsonl
    """
    extras = {"questions": None if questions is None else str(questions)}
    _run("instruct", "Alpaca", asked, extras=extras, files={"questions": questions})


@main.command()
@click.option("--task", required=True, help="CIFAR10, DTD, ...: one of the eight data sets.")
@_shared("base")
def vit(task: str, **asked: Any) -> None:
    """Fine-tune ViT on a data set of images.

    Example: python -m experiments.paper_scale vit --task DTD --method loca --components 10000
    """
    _run("vit", task, asked)


@main.command()
@click.option("--samples", type=click.IntRange(min=0), default=4, show_default=True,
              help="Number of unseen photographs to edit afterwards.")  # fmt: skip
@click.option("--resolution", type=click.IntRange(min=8), help="Width and height in pixels.")
@_shared("sd15")
def diffusion(samples: int, resolution: int | None, **asked: Any) -> None:
    """Fine-tune InstructPix2Pix to make cartoons.

    Example: python -m experiments.paper_scale diffusion --method loca --components 5000
    """
    extras = {"samples": samples, "resolution": resolution}
    _run("diffusion", "cartoons", asked, extras=extras, files={"samples": samples})


@main.command("list")
def list_command() -> None:
    """List the experiments and their settings, and what is not run and why.

    Example: python -m experiments.paper_scale list
    """
    show()


def _run(
    name: str,
    task: str,
    asked: dict[str, Any],
    extras: dict[str, Any] | None = None,
    files: dict[str, Any] | None = None,
) -> None:
    from experiments.paper_scale.prepared import Paths
    from experiments.paper_scale.running import run
    from experiments.paper_scale.settings import Choice, resolve, seeds

    family = families()[name]
    find("task", task, family.tasks)
    find("model size", asked["model_size"], family.sizes)
    paths = Paths(
        asked["out"], asked["model"], asked["data"], asked["save_every"], extras or {}, files or {}
    )
    chosen = [
        Choice(family, task, asked["model_size"], asked["method"], seed, asked["r"],
               asked["components"], asked["lr"], asked["max_steps"], asked["batch_size"])
        for seed in asked["seeds"] or seeds(family)
    ]  # fmt: skip
    for note in resolve(chosen[0]).notes:
        click.echo(f"note: {note}", err=True)
    prepare = importlib.import_module(f"experiments.paper_scale.{name}").prepare
    for choice in chosen:
        row, computed = run(choice, paths, prepare)
        click.echo(_line(row) + ("" if computed else " (stored)"))


def _line(row: dict[str, Any]) -> str:
    where = f"{row['task']}, {row['size']}, {row['method']}, seed {row['seed']}"
    if row["diverged"]:
        return f"{where}: diverged after {row['steps']} steps"
    return (
        f"{where}: {row['metric']} {row['value']:.4g} after {row['steps']} steps, "
        f"{row['trained']:,} trained parameters besides the head"
    )


if __name__ == "__main__":
    main(prog_name="python -m experiments.paper_scale")

"""``loca-theory analyze``: how a fine-tune changed every weight matrix."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.analysis_tables import in_csv, note_damaged, print_analysis
from loca_theory.cli.methods import chosen_methods
from loca_theory.cli.options import Common, command_of, rare_option
from loca_theory.cli.output import emit
from loca_theory.cli.progress import note
from loca_theory.cli.stores import note_written, open_store, running

if TYPE_CHECKING:
    from loca_theory.checkpoints import Analysis

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class Entries(click.ParamType):
    """A number of entries such as ``50M``."""

    name = "entries"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Parse the text, or fail with a one-line message."""
        found = re.fullmatch(r"(\d+)([kmg]?)", str(value).lower())
        if not found or not int(found[1]):
            self.fail(
                f"{value!r} is not a number of entries; write 1000000, 500k or 50M", param, ctx
            )
        return int(found[1]) * _UNITS[found[2]]


# Options that select matrices, in each command that reads checkpoints.
SELECTION: dict[str, dict[str, Any]] = {
    "include": {"metavar": "REGEX"},
    "exclude": {"metavar": "REGEX"},
    "max_size": {
        "type": Entries(),
        "metavar": "N",
        "help": "Matrices with more entries are left out; write 1000000, 500k or 50M.",
    },
}


@command_of(
    "checkpoints.analysis:analyze",
    click.argument("base", metavar="[BASE]", required=False),
    click.argument("tuned", metavar="[FINETUNED]...", nargs=-1),
    click.option(
        "--demo",
        is_flag=True,
        help="Analyse a small pair of checkpoints that comes with the package.",
    ),
    rare_option(
        "--pictures",
        is_flag=True,
        help="With --out: draw every picture as PNG and PDF as well, which takes a few seconds.",
    ),
    out="Folder for tables, analyze.html and the results of each finished matrix, from "
    "which an interrupted run continues.  [default: nothing is stored]",
    rare=("group", "bits", "max_size", "experts", "epsilon", "accounting", "seed", "device"),
    without=("base", "printed"),
    **SELECTION,
    group={"metavar": "REGEX"},
    ranks={"flag": "--r"},
    methods={
        "help": "Methods to compare with LoRA, random Fourier, FourierFT, Fourier pairs, Fourier, "
        "LoCA and entries, which are always included; 'all' stands for those of the package. Name "
        "your own method as module:attribute."
    },
    experts={"type": click.Choice(["each", "stacked"])},
    epsilon={"type": click.FloatRange(0, 1, max_open=True), "metavar": "FLOAT"},
    subspaces={
        "type": click.IntRange(min=1),
        "metavar": "K",
        "help": "Compare the K leading singular vectors of each change with those of the base's "
        "matrix, and between fine-tunes; count intruder dimensions (those that resemble none of "
        "the base's 4K leading ones). Takes longer.",
    },
    allocate={"type": str, "metavar": "TOTAL"},
    bits={
        "help": "Bits per entry, such as 0.5,1,2, at which coders of the changes are compared, "
        "each with and without a cosine transform; JSON and the files of --out have the errors."
    },
)
def command(
    *,
    common: Common,
    base: str | None,
    tuned: tuple[str, ...],
    demo: bool,
    ranks: tuple[int, ...],
    methods: tuple[str, ...] | None,
    include: str | None,
    exclude: str | None,
    group: str | None,
    max_size: int | None,
    experts: Any,
    epsilon: float,
    accounting: str,
    subspaces: int | None,
    allocate: str | None,
    bits: tuple[float, ...] | None,
    pictures: bool,
) -> int:
    """Show how fine-tunes changed every weight matrix, and compare adapters on the changes.

    For each matrix: are the entries of the change normal and independent, in how few dimensions
    does it lie, and how much of it could each adapter retain? With several FINETUNED: do they
    change the base in the same direction?

    BASE and FINETUNED are .safetensors files, PyTorch files (loaded without executing code),
    folders with a checkpoint (sharded or not), Hugging Face cache folders or
    hub:org/name[@revision]. FINETUNED may also be the folder of an adapter of PEFT. To analyse
    an adapter whose change does not depend on the base, such as plain LoRA, you can omit BASE.

    \b
    Examples:
      loca-theory analyze --demo
      loca-theory analyze base/ finetuned/ --r 8,16,32
      loca-theory analyze base.safetensors tuned.safetensors --include 'query|value' --out report
      loca-theory analyze base/ adapter-1/ adapter-2/ finetuned/ --subspaces 10 -j 4
      loca-theory analyze my-lora-adapter/
    """
    if demo == (base is not None):
        msg = "give BASE and FINETUNED, or only --demo"
        raise click.UsageError(msg)
    if pictures and not common.out:
        msg = "--pictures needs a folder to write to; add --out DIR"
        raise click.UsageError(msg)
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints import analyze, demo_pair
    from loca_theory.checkpoints.rows import Matrix

    sources = demo_pair() if base is None else (base, *tuned)
    store = open_store(common) if common.out else None
    with running(common, store, "analysing", "matrices") as runner:
        result = analyze(
            *sources,
            ranks=ranks,
            methods=chosen_methods(methods or (), of_matrices=True),
            include=include,
            exclude=exclude,
            group=group,
            max_size=max_size,
            experts=experts,
            epsilon=epsilon,
            accounting=accounting,
            subspaces=subspaces,
            allocate=allocate,
            bits=bits or (),
            seed=common.seed,
            device=common.device,
            runner=runner,
        )
    for tuned, prefix in result.manifest["grid"]["prefixes"].items():
        if prefix:
            where = f" of {tuned}" if len(result.tuned) > 1 else ""
            note(f"names{where} were matched by the prefix {prefix!r}", quiet=common.quiet)
    if common.out:
        _write(result, common, has_pictures=pictures)
    if common.output_format == "csv":
        for text in result.warnings:
            note(text, quiet=False)
        if result.allocation or result.comparisons:
            line = "CSV holds the matrices only; --format json has the sizes and comparisons too"
            note(line, quiet=common.quiet)
    emit(
        result.to_json(),
        lambda: print_analysis(result),
        common,
        rows=in_csv(result.matrices),
        columns=[one.name for one in fields(Matrix)],
    )
    return note_damaged(result.skipped)


def _write(result: Analysis, common: Common, *, has_pictures: bool) -> None:
    from loca_theory.plotting import report
    from loca_theory.plotting.pictures import save_pictures

    folder = common.folder
    written = result.save(folder)
    written.append(report(result).save(folder / "analyze.html"))
    if has_pictures:
        written += save_pictures(result, folder)
    note_written(written, common)

"""``loca-theory analyze``: how a fine-tune changed every weight matrix."""

from __future__ import annotations

from dataclasses import fields
from functools import partial
from typing import Any

import click

from loca_theory.checkpoints.source.paths import check_paths
from loca_theory.cli.commands.left_out import note_damaged
from loca_theory.cli.commands.methods import chosen_methods
from loca_theory.cli.options import Common, command_of, demo_option
from loca_theory.cli.output import emit
from loca_theory.cli.printable import note
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.running import running


def printed_columns() -> dict[str, str]:
    """Meanings of the columns of the printed tables."""
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.cli.commands import analysis_tables

    return analysis_tables.printed_columns()


@command_of(
    "checkpoints.analysis:analyze",
    click.argument("base", metavar="[BASE]", required=False),
    click.argument("tuned", metavar="[FINETUNED]...", nargs=-1),
    demo_option("Analyse"),
    click.option(
        "--full", is_flag=True, help="Print all findings, methods, tests, totals by kind and layer."
    ),
    click.option(
        "--config",
        "with_config",
        is_flag=True,
        help="Print the configuration, for PEFT, of the adapter that the fine-tune would fit.",
    ),
    out="Folder for tables, analyze.html and the results of each finished matrix, from "
    "which an interrupted run continues.  [default: nothing is stored]",
    columns=printed_columns,
    rare=(
        *("exclude", "group", "bits", "subspaces", "max_size", "experts", "epsilon", "accounting"),
        *("shuffle", "seed", "device"),
    ),
    without=("base", "printed"),
    group={"metavar": "REGEX"},
    ranks={"flag": "--r"},
    methods={
        "help": "Methods to compare with LoRA, random Fourier, FourierFT, Fourier pairs, Fourier, "
        "LoCA and entries, which are always included; 'all' stands for those of the package. Name "
        "your own method as module:attribute."
    },
    accounting={"show_default": "paper; trainable with --allocate of numbers"},
    epsilon={"type": click.FloatRange(0, 1, max_open=True), "metavar": "FLOAT"},
    subspaces={"type": WholeNumber(min=1), "metavar": "K"},
)
def command(
    *,
    common: Common,
    base: str | None,
    tuned: tuple[str, ...],
    demo: bool,
    full: bool,
    with_config: bool,
    methods: tuple[str, ...] | None,
    bits: tuple[float, ...] | None,
    **arguments: Any,
) -> int:
    """Show how fine-tunes changed every weight matrix, and compare adapters on the changes.

    For each matrix: are the entries of the change normal and independent, in how few dimensions
    does it lie, and how much of it could each adapter retain? With several FINETUNED: do they
    change the base in the same direction?

    BASE and FINETUNED are .safetensors files, PyTorch files (loaded without executing code),
    folders with a checkpoint (sharded or not) or hub:org/name[@revision]. FINETUNED may also be
    the folder of an adapter of PEFT. To analyse an adapter whose change does not depend on the
    base, such as plain LoRA, you can omit BASE. --columns says what the columns of the tables mean.

    \b
    Examples:
      loca-theory analyze --demo
      loca-theory analyze base/ finetuned/ --r 8,16,32
      loca-theory analyze base/ finetuned/ --include 'query|value' --out report
      loca-theory analyze base/ adapter-1/ adapter-2/ finetuned/ --subspaces 10
      loca-theory analyze my-lora-adapter/
    """
    if demo == (base is not None):
        raise click.UsageError("give BASE and FINETUNED, or only --demo")
    check_paths(() if base is None else (base, *tuned))
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints import analyze, demo_pair
    from loca_theory.checkpoints.measure.rows import Matrix
    from loca_theory.cli.commands.analysis_tables import print_analysis

    sources = demo_pair() if base is None else (base, *tuned)
    chosen = chosen_methods(methods or (), common, of_matrices=True)
    with running(common, "analysing", "matrices", is_stored=common.out is not None) as runner:
        result = analyze(*sources, methods=chosen, bits=bits or (), runner=runner, **arguments)
    for label, prefix in result.manifest["grid"]["prefixes"].items():
        if prefix:
            where = f" of {label}" if len(result.tuned) > 1 else ""
            common.note(f"names{where} were matched by the prefix {prefix!r}")
    if common.out:
        from loca_theory.plotting import report

        page = report(result).save(common.folder / "analyze.html")
        common.note_written([*result.save(common.folder), page])
    if common.output_format == "csv":
        for text in result.warnings:
            note(text)
    columns = [field.name for field in fields(Matrix)]
    show = partial(print_analysis, result, is_full=full, with_config=with_config)
    emit(result.to_json(), show, common, columns=columns)
    return note_damaged(result.skipped)

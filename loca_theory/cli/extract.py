"""``loca-theory extract``: convert a full fine-tune to an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.analysis_tables import note_damaged, print_matrices, print_skipped
from loca_theory.cli.analyze import SELECTION
from loca_theory.cli.options import DEFAULT_OUT, Common, default_option, options
from loca_theory.cli.output import console, plain_table, print_json, print_table
from loca_theory.cli.stores import note_written, running

if TYPE_CHECKING:
    from loca_theory.checkpoints import Extraction

_MOST_ROWS = 60


@click.command("extract")
@click.argument("base", metavar="BASE")
@click.argument("tuned", metavar="FINETUNED")
@default_option(
    "--method",
    type=click.Choice(["loca", "lora"]),
    default="loca",
    help="Kind of adapter.",
)
@click.option(
    "--r",
    "rank",
    type=click.IntRange(min=1),
    metavar="R",
    help="LoRA rank; LoCA gets the budget of this rank.",
)
@click.option(
    "--components",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of LoCA coefficients per matrix.",
)
@options(
    *SELECTION,
    out="Folder for the adapter. It must not contain a model, or an adapter from elsewhere.  "
    f"[default: {DEFAULT_OUT}]",
)
def command(
    *,
    common: Common,
    base: str,
    tuned: str,
    method: Any,
    rank: int | None,
    components: int | None,
    include: str | None,
    exclude: str | None,
    max_size: int | None,
) -> int:
    """Convert a full fine-tune to the best LoCA or LoRA adapter, and print its error.

    PEFT can load the adapter; for LoCA, import loca_theory.adapters first. For each linear layer,
    LoCA stores the largest DCT coefficients of the weight change, and LoRA the truncated singular
    value decomposition. With --r, LoCA stores (p + q) R / 2 coefficients of a p×q matrix, because
    the paper counts a coefficient and its location as one number each.

    \b
    Examples:
      loca-theory extract base/ finetuned/ --components 10000 --out adapter
      loca-theory extract base/ finetuned/ --method lora --r 16 --include 'query|value'
    """
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory import checkpoints

    checkpoints.check_folder(common.folder)
    with running(common, None, "extracting", "matrices") as runner:
        result = checkpoints.extract(
            base,
            tuned,
            method,
            rank=rank,
            components=components,
            include=include,
            exclude=exclude,
            max_size=max_size,
            runner=runner,
        )
    written = result.save(common.folder)
    match common.output_format:
        case "json":
            print_json({**result.to_json(), "files": [str(path) for path in written]})
        case "csv":
            print_matrices(result.matrices, checkpoints.ExtractedMatrix)
        case _:
            _print(result, common.folder)
    note_written(written, common)
    return note_damaged(result.skipped)


def _print(result: Extraction, folder: Path) -> None:
    out = console()
    which = "components" if result.method == "loca" else "r"
    table = plain_table("matrix", "shape", which, "numbers", "error")
    for one in result.matrices[:_MOST_ROWS]:
        table.add_row(
            one.name.removesuffix(".weight"),
            "×".join(map(str, one.shape)),
            str(one.components or one.r),
            f"{one.numbers:,}",
            f"{one.error:.3f}",
        )
    print_table(table, out)
    if len(result.matrices) > _MOST_ROWS:
        more = len(result.matrices) - _MOST_ROWS
        out.print(f"… and {more} more; all of them in extract-matrices.parquet")
    numbers = sum(one.numbers for one in result.matrices)
    name = {"loca": "LoCA", "lora": "LoRA"}[result.method]
    out.print()
    out.print(
        f"{name} with {numbers:,} learned numbers: relative squared error {result.error:.1%} over "
        f"{len(result.matrices)} increments.",
        highlight=False,
    )
    out.print(f"The adapter is in {folder}.", highlight=False, markup=False, soft_wrap=True)
    print_skipped(out, result.skipped)

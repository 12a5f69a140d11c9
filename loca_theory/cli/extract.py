"""``loca-theory extract``: a full fine-tune as an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.analyze import Entries
from loca_theory.cli.options import DEFAULT_OUT, Common, options
from loca_theory.cli.output import console, plain_table, print_csv, print_json, print_table
from loca_theory.cli.progress import note, progress_bar
from loca_theory.sweeps import manifest, store_rows
from loca_theory.sweeps.files import writable_folder

if TYPE_CHECKING:
    from loca_theory.checkpoints import Extraction

_INCOMPLETE = 4
_MOST_ROWS = 60


@click.command("extract")
@click.argument("base", metavar="BASE")
@click.argument("tuned", metavar="FINETUNED")
@click.option(
    "--method",
    type=click.Choice(["loca", "lora"]),
    default="loca",
    show_default=True,
    help="Kind of adapter.",
)
@click.option("--r", "rank", type=click.IntRange(min=1), metavar="R", help="LoRA's rank.")
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="Learned numbers a matrix: LoCA's coefficients, or LoRA's (p + q) r.",
)
@click.option("--include", metavar="REGEX", help="Only matrices of which this matches a part.")
@click.option("--exclude", metavar="REGEX", help="Not those of which this matches a part.")
@click.option("--max-size", type=Entries(), help="Skip matrices with more entries, such as 50M.")
@options(
    out="Write the adapter here, into a folder without a model or another adapter.  "
    f"[default: {DEFAULT_OUT}]",
)
def command(
    *,
    common: Common,
    base: str,
    tuned: str,
    method: Any,
    rank: int | None,
    budget: int | None,
    include: str | None,
    exclude: str | None,
    max_size: int | None,
) -> int:
    """Turn a full fine-tune into the best LoCA or LoRA adapter, and say what it leaves.

    Writes an adapter that PEFT loads (LoCA after "import loca_theory.adapters") under --out. LoCA
    takes the largest DCT coefficients of every increment of a linear layer, LoRA its truncated
    singular value decomposition. With --r, LoCA gets (p + q) R / 2 coefficients, each with a place
    that costs as much: the budget of the paper.

    \b
    Examples:
      loca-theory extract base/ finetuned/ --method loca --budget 10000 --out adapter
      loca-theory extract base/ finetuned/ --method lora --r 16 --include 'query|value'
    """
    # Imports torch, which a look at the help shall not wait for.
    from loca_theory import checkpoints

    size = checkpoints.AdapterSize(rank, budget)
    checkpoints.check_folder(common.folder)
    pair = checkpoints.open_pair(
        base, tuned, checkpoints.Selection(include, exclude, max_size, smallest_side=1)
    )
    writable_folder(common.folder)
    with progress_bar("extracting", "matrices", quiet=common.quiet) as progress:
        found = checkpoints.extract(
            pair, method, size, base=base.removeprefix("hub:"), progress=progress
        )
    origin = manifest(
        grid={"base": base, "finetuned": tuned, "method": method, "r": rank, "budget": budget,
              "include": include, "exclude": exclude, "max_size": max_size},
        seed=None,
        device="cpu",
        dtype="float32",
    )  # fmt: skip
    written = found.write(common.folder)
    written += store_rows(found.rows, origin, common.folder, "extract")
    match common.output_format:
        case "json":
            skipped = [{"name": one.name, "reason": one.reason} for one in found.skipped]
            print_json(
                {
                    "rows": found.rows,
                    "error": found.error,
                    "skipped": skipped,
                    "files": [str(path) for path in written],
                    "manifest": origin,
                }
            )
        case "csv":
            shown = [{**row, "shape": "x".join(map(str, row["shape"]))} for row in found.rows]
            print_csv(shown, checkpoints.EXTRACTION_COLUMNS)
        case _:
            _print(found, common.folder)
    for path in written:
        note(f"wrote {path}", quiet=common.quiet)
    damaged = [one for one in found.skipped if one.damaged]
    if damaged:
        line = f"{len(damaged)} matrices are damaged and were left out, the first: "
        note(f"{line}{damaged[0].name}: {damaged[0].reason}", quiet=False)
    return _INCOMPLETE if damaged else 0


def _print(found: Extraction, folder: Path) -> None:
    from loca_theory.cli.analysis_tables import print_skipped

    out = console()
    which = "components" if found.method == "loca" else "r"
    table = plain_table("matrix", "shape", which, "numbers", "error")
    for row in found.rows[:_MOST_ROWS]:
        p, q = row["shape"]
        table.add_row(
            row["name"].removesuffix(".weight"),
            f"{p}×{q}",
            str(row[which]),
            f"{row['numbers']:,}",
            f"{row['error']:.3f}",
        )
    print_table(table, out)
    if len(found.rows) > _MOST_ROWS:
        out.print(f"… and {len(found.rows) - _MOST_ROWS} more, all in extract.parquet")
    numbers = sum(row["numbers"] for row in found.rows)
    name = {"loca": "LoCA", "lora": "LoRA"}[found.method]
    out.print()
    out.print(
        f"{name} with {numbers:,} learned numbers leaves {found.error:.1%} of the energy of "
        f"{len(found.rows)} increments.",
        highlight=False,
    )
    out.print(f"The adapter is in {folder}.", highlight=False, markup=False, soft_wrap=True)
    print_skipped(out, found.skipped)

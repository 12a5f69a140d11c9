"""``loca-theory analyze``: what a fine-tune did to every weight matrix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from loca_theory.cli.options import DEVICE, SEED, Common, options
from loca_theory.cli.output import print_csv, print_json
from loca_theory.cli.progress import note
from loca_theory.cli.ranges import IntegerList
from loca_theory.cli.stores import open_store, running
from loca_theory.expressivity import Accounting
from loca_theory.sweeps import manifest, store_rows

if TYPE_CHECKING:
    from loca_theory.checkpoints import CheckpointPair, Report

_INCOMPLETE = 4
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class Entries(click.ParamType):
    """A number of entries such as ``50M``."""

    name = "entries"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Parse; a message of one line where that fails."""
        found = re.fullmatch(r"(\d+)([kmg]?)", str(value).lower())
        if not found or not int(found[1]):
            self.fail(f"{value!r} is no number of entries; write 1000000, 500k or 50M", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


@click.command("analyze")
@click.argument("base", metavar="BASE")
@click.argument("tuned", metavar="[FINETUNED]", required=False)
@click.option(
    "--r",
    "ranks",
    type=IntegerList(),
    default="8,16,32",
    show_default=True,
    metavar="LIST",
    help="LoRA ranks that set the budgets.",
)
@click.option("--include", metavar="REGEX", help="Only matrices of which this matches a part.")
@click.option("--exclude", metavar="REGEX", help="Not those of which this matches a part.")
@click.option("--max-size", type=Entries(), help="Skip matrices with more entries, such as 50M.")
@click.option(
    "--epsilon",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.001,
    show_default=True,
    help="Total variation that still counts as normal.",
)
@click.option(
    "--budget",
    type=click.Choice([one.value for one in Accounting]),
    default=Accounting.PAPER.value,
    show_default=True,
    help="How budgets count.",
)
@options(
    SEED,
    DEVICE,
    out="Store tables, figures and analyze.html here, and each matrix once it is done, for an "
    "interrupted run to go on from.  [default: nothing is stored]",
)
def command(
    *,
    common: Common,
    base: str,
    tuned: str | None,
    ranks: tuple[int, ...],
    include: str | None,
    exclude: str | None,
    max_size: int | None,
    epsilon: float,
    budget: str,
) -> int:
    """Are the changes of a fine-tune normal and independent, and which adapter keeps them?

    BASE and FINETUNED are .safetensors files, PyTorch files without code in them, folders (sharded
    ones too), Hugging Face cache folders or hub:org/name[@revision]. FINETUNED may be a LoRA
    adapter of PEFT, which can also stand alone.

    \b
    Examples:
      loca-theory analyze base/ finetuned/ --r 8,16,32
      loca-theory analyze base.safetensors tuned.safetensors --include 'query|value' --out report
      loca-theory analyze my-lora-adapter/
    """
    # Imports torch, which a look at the help shall not wait for.
    from loca_theory import checkpoints
    from loca_theory.transforms import resolve_device

    pair = checkpoints.open_pair(base, tuned, checkpoints.Selection(include, exclude, max_size))
    settings = checkpoints.Settings(
        ranks,
        seed=common.seed,
        epsilon=epsilon,
        accounting=Accounting(budget),
        device=resolve_device(common.device),
    )
    store = open_store(common, checkpoints.version()) if common.out else None
    with running(common, store, "analysing", "matrices") as runner:
        report = checkpoints.analyse_pair(pair, settings, runner)
    summary = checkpoints.summarise(report.rows, ranks)
    origin = manifest(
        grid={"base": base, "finetuned": tuned, "include": include, "exclude": exclude,
              "max_size": max_size, **settings.describe()},
        seed=common.seed,
        device=settings.device,
        dtype="float32",
    )  # fmt: skip
    if pair.prefix:
        note(f"names were matched by the prefix {pair.prefix!r}", quiet=common.quiet)
    text = checkpoints.verdict(summary, ranks, epsilon)
    config = checkpoints.adapter_config(report.rows, summary, ranks)
    if common.out:
        _write(report, pair, summary, origin, (text, config), common)
    skipped = [{"name": one.name, "reason": one.reason} for one in report.skipped]
    match common.output_format:
        case "json":
            summary = {**summary, "verdict": text, "config": config}
            print_json(
                {"rows": report.rows, "skipped": skipped, "summary": summary, "manifest": origin}
            )
        case "csv":
            shown = [{**row, "shape": "x".join(map(str, row["shape"]))} for row in report.rows]
            columns = checkpoints.COLUMNS
            print_csv([{key: row[key] for key in columns} for row in shown], columns)
        case _:
            from loca_theory.cli.analysis_tables import print_report

            print_report(report, summary, text, config, ranks)
    damaged = [one for one in report.skipped if one.damaged]
    if damaged:
        first = damaged[0]
        line = f"{len(damaged)} matrices are damaged and were left out, the first: {first.name}: "
        note(line + first.reason, quiet=False)
    return _INCOMPLETE if damaged else 0


def _write(
    report: Report,
    pair: CheckpointPair,
    summary: dict[str, Any],
    origin: dict[str, Any],
    words: tuple[str, str],
    common: Common,
) -> None:
    from loca_theory import checkpoints, plotting

    folder = common.folder
    rows = [{key: value for key, value in row.items() if key != "errors"} for row in report.rows]
    written = store_rows(rows, origin, folder, "analyze-matrices")
    written += store_rows(report.errors(), origin, folder, "analyze-errors")
    tuned = None if pair.base is None else pair.tuned
    written += store_rows(checkpoints.shown_rows(report, tuned), origin, folder, "analyze-shown")
    figures = plotting.draw_analysis(folder) if report.analyses else {}
    written += [path for paths in figures.values() for path in paths]
    pictures = {title: paths[0] for title, paths in figures.items()}
    written.append(plotting.write_html(report, summary, origin, words, pictures, folder))
    for path in written:
        note(f"wrote {path}", quiet=common.quiet)

"""``loca-theory extract``: convert a full fine-tune to an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loca_theory._words import counted, first_of
from loca_theory.checkpoints.source.paths import check_paths
from loca_theory.cli.columns import meanings_of, print_pointer, printed
from loca_theory.cli.commands.left_out import note_damaged, print_skipped, short_name
from loca_theory.cli.options import DEFAULT_OUT, Common, command_of, demo_option
from loca_theory.cli.output import Rows, console, emit
from loca_theory.cli.printable import printable
from loca_theory.cli.ranges import WholeNumber
from loca_theory.cli.running import running

if TYPE_CHECKING:
    from loca_theory.checkpoints import Extraction

# Modules that are named of those that are not in the adapter.
_NAMED = 3
# Columns of the printed table; the latter if an adapter was moved.
_COLUMNS = (
    printed("r", "r"),
    printed("components", "components"),
    printed("numbers", "numbers", ","),
    printed("retained", "error", ".1%", is_complement=True),
    printed("retained in PEFT", "loaded_error", ".1%", is_complement=True),
    printed("left after rounding", "surviving_energy", ".0%"),
    printed("same bits", "identical", ".2%"),
)
_STEPS = (
    printed("steps", "steps"),
    printed("distance", "distance", ".1e"),
    printed("before", "nearest_distance", ".1e"),
)
_OUTPUTS = (
    printed("outputs of", "model"),
    printed("error", "error", ".3f"),
    printed("same", "agreement", ".1%"),
    printed("KL", "kl", ".3g"),
)
_SIZES, _DEMO_RANK = ("rank", "components", "allocate", "energy"), 8
_COUNT = {"type": WholeNumber(min=1), "metavar": "N"}


def printed_columns() -> dict[str, str]:
    """Meanings of the columns of the printed table."""
    from loca_theory.checkpoints.extraction.rows import ExtractedMatrix

    return meanings_of((*_COLUMNS, *_STEPS), ExtractedMatrix)


@command_of(
    "checkpoints.extraction.extract:extract",
    click.argument("base", metavar="[BASE]", required=False),
    click.argument("tuned", metavar="[FINETUNED]...", nargs=-1),
    demo_option("Extract from"),
    out="Folder for the tables; the adapter is written to lora, loca or entries below it, or "
    "below a folder of its own for each of several fine-tunes.  "
    f"[default: {DEFAULT_OUT}]",
    columns=printed_columns,
    rare=(
        "save_modules",
        *("floor", "cap", "serve", "inputs", "requantise", "dtype", "rounding", "exclude"),
        *("max_size", "device", "jobs"),
    ),
    without=("base", "tuned", "model"),
    rank=_COUNT | {"flag": "--r", "metavar": "R"},
    components=_COUNT,
    energy={"metavar": "FRACTION"},
    floor={"type": WholeNumber(min=0), "metavar": "N"},
    cap=_COUNT,
    save_modules={"flag": "--save-module", "type": str, "multiple": True, "metavar": "REGEX"},
    inputs={"type": click.Path(exists=True, dir_okay=False, path_type=Path), "metavar": "FILE"},
)
def command(
    *,
    common: Common,
    base: str | None,
    tuned: tuple[str, ...],
    demo: bool,
    method: Any,
    **arguments: Any,
) -> int:
    """Convert a fine-tune to a LoCA, LoRA or SHiRA adapter, and print what it retains.

    FINETUNED is a checkpoint with full weights, or an adapter, which is resized; of several, each
    gets an adapter. PEFT can load the adapter; for LoCA, import loca_theory.adapters first. If
    config.json names a class of transformers, it decides which weights are of linear layers, and
    their names. For each linear layer, LoCA stores the largest DCT coefficients of the weight
    change, LoRA the truncated singular value decomposition, and SHiRA the largest entries (--method
    entries). With --r, LoCA stores (p + q) R / 2 coefficients of a p×q matrix, because the paper
    counts a coefficient and its location as one number each. With --allocate or --energy, sizes
    differ from matrix to matrix; the spectra on which they depend are stored in the folder, and a
    killed run continues from them. --columns says what the columns of the table mean.

    \b
    Examples:
      loca-theory extract --demo
      loca-theory extract base/ finetuned/ --components 10000 --out adapter
      loca-theory extract base/ finetuned/ --method lora --allocate 4MB
      loca-theory extract base/ finetuned/ --method lora --r 16 --include query
      loca-theory extract base/ adapter/ --method lora --r 8 --check
    """
    if demo == bool(tuned) or demo == (base is not None):
        raise click.UsageError("give BASE and FINETUNED, or only --demo")
    check_paths(() if base is None else (base, *tuned))
    if demo and all(arguments[size] is None for size in _SIZES):
        arguments["rank"] = _DEMO_RANK
        common.note(f"without a size, --demo takes --r {_DEMO_RANK}")
    # Imported here, because it loads torch, which --help does not need.
    from loca_theory.checkpoints import demo_pair, extract
    from loca_theory.checkpoints.change.opening import labels
    from loca_theory.checkpoints.form.folder import check_folder

    first, *others = demo_pair() if base is None else (base, *tuned)
    names = labels(tuned) if len(tuned) > 1 else [""]
    folders = {name: check_folder(common.folder / name, method) for name in names}
    results, documents = [], {}
    for (name, folder), finetune in zip(folders.items(), others, strict=True):
        with running(common, f"extracting {name}".rstrip(), "matrices") as runner:
            result = extract(first, finetune, method, runner=runner, **arguments)
        files = result.save(folder)
        results.append((name, folder, result))
        documents[name] = {**result.to_json(), "files": [str(path) for path in files]}
        common.note_written(files)
    document = documents[names[0]]
    if len(documents) > 1:
        rows = [{"tuned": name, **row} for name, part in documents.items() for row in part["rows"]]
        document = {"rows": rows, "extractions": documents}

    def show() -> None:
        for extraction in results:
            _print(*extraction)

    emit(document, show, common)
    return note_damaged([skipped for *_, result in results for skipped in result.skipped])


def _print(tuned: str, folder: Path, result: Extraction) -> None:
    from rich.filesize import decimal

    from loca_theory.checkpoints.change.selection import MatrixSelection
    from loca_theory.checkpoints.form.folder import WEIGHTS
    from loca_theory.checkpoints.form.forms import FORMS

    out = console()
    if tuned:
        out.print(f"\n{printable(tuned)}", style="bold")
    columns = (*_COLUMNS, *_STEPS) if result.moved else _COLUMNS
    cells = [
        {
            "matrix": printable(short_name(row.name)),
            "shape": "×".join(map(str, row.shape)),
            **{column.title: column.text(row) for column in columns},
        }
        for row in result.matrices
    ]
    if cells:
        Rows(cells).print(out)
        print_pointer(out, "extract")
    numbers = sum(row.numbers for row in result.matrices)
    name = " and ".join(FORMS[method].title for method in result.adapters)
    retained, after = f"{1 - result.split_error:.1%}", f"{1 - result.error:.1%}"
    moved = f", {after} after steps into the rounding cells" if after != retained else ""
    out.print(
        f"\n{name} with {numbers:,} learned numbers: {retained} of the energy of "
        f"{counted(len(result.matrices), 'increment')} is retained{moved}."
    )
    least = MatrixSelection.smallest_side
    if small := sum(min(row.shape) < least for row in result.matrices):
        out.print(f"analyze leaves out {small:,} of them, because a side is below {least}.")
    if result.method != "best":
        out.print("Another form may suit the change better: loca-theory analyze compares them.")
    if result.rounding_note:
        out.print(result.rounding_note)
    if result.identical is not None:
        out.print(_merges(result))
    if result.saved_numbers:
        out.print(f"{result.saved_numbers:,} more numbers are in modules that are stored whole.")
    if result.uniform_error is not None:
        allocated = result.split_error
        splits = [result.uniform_error, result.equal_error, allocated, result.least_error]
        uniform, equal, allotted, bound = (
            f"{1 - error:.1%}" for error in splits if error is not None
        )
        same = f"Uniform sizes retain {uniform} of the energy, a split of what they cost {equal}, "
        if result.uniform_error == 1:
            same = "The same size for all matrices would cost more; "
        split = f"allocated sizes retain {allotted}; no split retains more than {bound}"
        out.print(f"{same}{split}{', all before these steps' if result.moved else ''}.")
    if result.outputs:
        cells = [{column.title: column.text(row) for column in _OUTPUTS} for row in result.outputs]
        Rows(cells).print(out, then_empty=False)
        out.print(
            f"Outputs on {result.outputs[0].positions:,} positions, compared with those of the "
            "fine-tune: squared error in units of the base's, how often the largest logit is the "
            "same, and the mean Kullback–Leibler divergence in nats."
        )
    if outside := result.changed_outside:
        # A parameter of the model itself, and not of a module inside it, has no dot.
        owners = list(dict.fromkeys(name.rpartition(".")[0] or name for name in outside))
        named = first_of(list(map(printable, owners)), _NAMED)
        modules = [name.rpartition(".")[0] for name in outside if "." in name]
        how = f"; --save-module {printable(modules[0])} stores one whole" if modules else ""
        out.print(
            f"Not in the adapter, though the fine-tune changed them: {named}. Without "
            f"them a loaded model answers otherwise{how}."
        )
    if result.note:
        out.print(result.note)
    sizes = {folder / key: (folder / key / WEIGHTS).stat().st_size for key in result.adapters}
    are = "adapters are" if len(result.adapters) > 1 else "adapter is"
    out.print(f"The {are} in {' and '.join(map(str, sizes))}.", soft_wrap=True)
    out.print(f"Size on disk: {' and '.join(map(decimal, sizes.values()))}.")
    print_skipped(out, result.skipped)


def _merges(result: Extraction) -> str:
    """How many entries PEFT gives back to the bit, by the way it merges."""
    titles = {
        "identical": "with the adapter in float32",
        "identical_half": "in the type of the base",
        "identical_safe": "in float32 and safe_merge",
        "identical_half_safe": "in the type of the base and safe_merge",
    }
    means = ", ".join(f"{result.same_bits(name):.2%} {title}" for name, title in titles.items())
    return f"Merged by PEFT, entries are those of the fine-tune to the bit: {means}."

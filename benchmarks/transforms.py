"""Speed and accuracy of the cosine transforms, compared with other libraries.

Run from the checkout: ``python -m benchmarks.transforms [--out FILE.json]``. Needs the ``bench``
extra. There are two measurements, all in float32:

- *dense*: ``dct2`` and ``idct2`` against scipy, torch-dct and the package's other methods, with the
  largest error on N(0, 1) entries. A plain real FFT of the same size is the floor.
- *threads*: the speed-up by further threads, for scipy's workers and for torch's.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import torch
from rich.console import Console
from rich.table import Table

from benchmarks._measure import Rival, environment, interleaved
from benchmarks._records import write_json
from benchmarks._transforms import floor, normal, scipy_transform
from loca_theory.transforms import dct2, idct2

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGES = ("torch", "scipy", "numpy", "torch-dct")
SHAPES = ((16, 300, 300), (1, 768, 768), (1, 4096, 4096))
QUESTIONS = ("dense", "threads")
OURS = "dct2/idct2 (auto)"


def _dense_transforms(inverse: bool, device: str) -> dict[str, Callable[[torch.Tensor], Any]]:
    import torch_dct

    ours = idct2 if inverse else dct2
    theirs = torch_dct.idct_2d if inverse else torch_dct.dct_2d
    methods = {
        OURS: ours,
        "torch-dct": partial(theirs, norm="ortho"),
        "ours, fft": partial(ours, method="fft"),
        "ours, matmul": partial(ours, method="matmul"),
    }
    if device == "cpu":
        workers = torch.get_num_threads()
        methods["scipy.fft.dctn/idctn"] = partial(scipy_transform, inverse=inverse, workers=workers)
    return methods


def dense(shape: tuple[int, ...], *, inverse: bool, device: str, rounds: int) -> list[dict]:
    """Measure every dense transform for one shape and direction."""
    x = normal(*shape)
    expected = scipy_transform(x.double(), inverse=inverse, workers=torch.get_num_threads())
    x = x.to(device)
    transforms = _dense_transforms(inverse, device)
    rivals = {name: Rival(partial(transform, x)) for name, transform in transforms.items()}
    rivals["torch.fft.rfft2/irfft2 (floor)"] = Rival(floor(x, inverse))
    timings = interleaved(rivals, rounds=rounds, device=device)
    return [
        {
            "device": device,
            "shape": list(shape),
            "direction": "inverse" if inverse else "forward",
            "contender": name,
            **timing.as_record(),
            "times_ours": timing.ratio_to(timings[OURS]),
            "max_abs_error": float((transforms[name](x).cpu().double() - expected).abs().max())
            if name in transforms
            else None,
        }
        for name, timing in timings.items()
    ]


def threads(shape: tuple[int, ...], *, rounds: int) -> list[dict]:
    """Measure each number of threads: all of the machine's, half of them, ..., 1."""
    x = normal(*shape)
    most = torch.get_num_threads()
    counts = sorted({max(1, most >> shift) for shift in range(most.bit_length())})
    rivals = {}
    for count in counts:
        prepare = partial(torch.set_num_threads, count)
        rivals["scipy.fft.dctn", count] = Rival(
            partial(scipy_transform, x, inverse=False, workers=count), prepare
        )
        rivals["ours, fft", count] = Rival(partial(dct2, x, method="fft"), prepare)
        rivals["torch.fft.rfft2", count] = Rival(partial(torch.fft.rfft2, x), prepare)
    try:
        timings = interleaved(rivals, rounds=rounds)
    finally:
        torch.set_num_threads(most)
    return [
        {
            "shape": list(shape),
            "contender": name,
            "threads": count,
            **timing.as_record(),
            "times_one_thread": timing.ratio_to(timings[name, 1]),
        }
        for (name, count), timing in timings.items()
    ]


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}"


def _dense_table(records: list[dict]) -> Table:
    first = records[0]
    size = "x".join(map(str, first["shape"]))
    table = Table(title=f"{first['direction']}, {size}, {first['device']}", title_justify="left")
    table.add_column("contender")
    for heading in ("ms", "times ours", "largest error"):
        table.add_column(heading, justify="right")
    for record in sorted(records, key=lambda record: record["median_s"]):
        error = record["max_abs_error"]
        table.add_row(
            record["contender"],
            _milliseconds(record["median_s"]),
            f"{record['times_ours']:.2f}",
            "" if error is None else f"{error:.1e}",
        )
    return table


def _threads_table(records: list[dict]) -> Table:
    size = "x".join(map(str, records[0]["shape"]))
    table = Table(title=f"threads, forward, {size}", title_justify="left")
    table.add_column("contender")
    for heading in ("threads", "ms", "times one thread"):
        table.add_column(heading, justify="right")
    for record in records:
        table.add_row(
            record["contender"],
            str(record["threads"]),
            _milliseconds(record["median_s"]),
            f"{record['times_one_thread']:.2f}",
        )
    return table


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="File for the results as JSON.")
@click.option("--rounds", default=11, show_default=True, type=click.IntRange(2))
def main(out: Path | None, rounds: int) -> None:
    """Compare the cosine transforms with those of other libraries."""
    console = Console()
    machine = environment(PACKAGES)
    record: dict[str, Any] = {"benchmark": "transforms", "environment": machine, "rounds": rounds}
    record |= {question: [] for question in QUESTIONS}
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for device in devices:
        for shape in SHAPES:
            for inverse in (False, True):
                records = dense(shape, inverse=inverse, device=device, rounds=rounds)
                record["dense"] += records
                console.print(_dense_table(records))
    for shape in SHAPES:
        records = threads(shape, rounds=rounds)
        record["threads"] += records
        console.print(_threads_table(records))
    worst = max(entry["other_load"] for kind in QUESTIONS for entry in record[kind])
    console.print(f"load by other processes: at most {worst:.2f} processors")
    if out is not None:
        write_json(out, record)
        console.print(f"wrote {out}")


if __name__ == "__main__":
    main()

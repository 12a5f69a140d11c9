"""E2E: fine-tune GPT-2 to turn slots and values into sentences.

Saved adapters fit only a model with split projections
(:func:`~experiments.paper_scale.adaptation.split_projections`).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import nn

from experiments.paper_scale.adaptation import split_projections
from experiments.paper_scale.loading import column, load_auto, package, read_data
from experiments.paper_scale.prepared import Paths, Prepared
from experiments.paper_scale.settings import Choice, Settings
from experiments.paper_scale.text import Texts, collate, continued, write_lines
from loca_theory.sweeps.files import writable_folder

_DECODING = ("num_beams", "length_penalty", "no_repeat_ngram_size", "max_new_tokens")


def prepare(choice: Choice, settings: Settings, paths: Paths) -> Prepared:
    """Prepare the model with split projections, the sentences, and the metrics."""
    transformers = package("transformers")
    task, options = choice.family.tasks[choice.task], choice.family.options
    source = paths.model or choice.family.sizes[choice.size].model
    parts = read_data(task, paths.data)
    tokenizer = load_auto(transformers.AutoTokenizer.from_pretrained, source)
    dropout = {} if settings.dropout is None else dict.fromkeys(
        ("attn_pdrop", "resid_pdrop", "embd_pdrop"), settings.dropout
    )  # fmt: skip
    model = load_auto(
        transformers.AutoModelForCausalLM.from_pretrained, source, use_safetensors=True, **dropout
    )
    split_projections(model)
    longest = settings.max_length or options["max_length"]
    data = {}
    for name, part in parts.items():
        meanings, sentences = _pairs(part, task.columns, task.label)
        prompts = [_prompt(one) for one in meanings]
        data[name] = Texts(prompts, [f" {one}" for one in sentences], tokenizer, longest)
    references = _references(*_pairs(parts[task.evaluation[0]], task.columns, task.label))

    def write(trained: nn.Module, folder: Path) -> dict[str, float]:
        asked = list(references)[: paths.files.get("texts")]
        if not asked:
            return {}
        decoding = {name: options[name] for name in _DECODING}
        texts = continued(trained, tokenizer, [_prompt(one) for one in asked],
                          settings.batch_size, **decoding)  # fmt: skip
        rows = [
            {"meaning_representation": one, "text": text, "references": references[one]}
            for one, text in zip(asked, texts, strict=True)
        ]
        write_lines(writable_folder(folder) / "texts.jsonl", rows)
        return bleu(texts, [references[one] for one in asked])

    return Prepared(
        model=model,
        train=data["train"],
        evaluation=data[task.evaluation[0]],
        collate=collate,
        metric="perplexity",
        value=perplexity,
        afterwards=write,
    )


def perplexity(metrics: Mapping[str, float]) -> float:
    """The exponential of the loss; infinite if it overflows."""
    loss = metrics.get("loss", math.nan)
    return math.exp(loss) if loss < 700 or math.isnan(loss) else math.inf


def bleu(texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """BLEU against all references of each text; empty if sacrebleu is not installed."""
    try:
        sacrebleu = importlib.import_module("sacrebleu")
    except ImportError:
        return {}
    streams = list(zip_longest(*references))
    return {"BLEU": float(sacrebleu.corpus_bleu(list(texts), streams).score)}


def _prompt(meaning: str) -> str:
    return f"{meaning} ||"


def _pairs(
    part: Any, columns: tuple[str, ...], label: tuple[str, ...]
) -> tuple[list[str], list[str]]:
    return list(part[column(part, columns)]), list(part[column(part, label)])


def _references(meanings: Sequence[str], sentences: Sequence[str]) -> dict[str, list[str]]:
    """Collect the sentences of each meaning, which the data repeats for every sentence."""
    found: dict[str, list[str]] = {}
    for meaning, sentence in zip(meanings, sentences, strict=True):
        found.setdefault(meaning, []).append(sentence)
    return found

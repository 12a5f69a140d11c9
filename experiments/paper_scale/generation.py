"""E2E with GPT-2, and Alpaca-52K with LLaMA: prompts, and the texts that are to follow them.

Adapters of GPT-2 fit only a model with split projections (:func:`split_projections`). The judge of
the answers to questions, GPT-4, is not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import sacrebleu
import torch
import transformers
from torch import nn

from experiments.paper_scale.prepared import (
    PreparedRun,
    column,
    errors_as_resource_errors,
    load_pretrained,
    read_data,
)
from experiments.paper_scale.settings import Choice, Settings
from loca_theory.sweeps.files import writable_folder

_DECODING = ("num_beams", "length_penalty", "no_repeat_ngram_size", "max_new_tokens")
_IGNORED = -100  # label of a token that no loss counts
_WITH = "Below is an instruction that describes a task, paired with an input that provides further "
_WITH += "context. Write a response that appropriately completes the request."
_WITHOUT = "Below is an instruction that describes a task. Write a response that appropriately "
_WITHOUT += "completes the request."
_ASK = "### Instruction:\n{}\n\n### Response:\n"


def prepare_e2e(choice: Choice, settings: Settings) -> PreparedRun:
    """Prepare GPT-2, and sentences that follow a meaning; only they count in the loss."""
    task, options = choice.family.tasks[choice.task], choice.family.options
    parts = read_data(choice)
    dropout = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), settings.dropout)
    model, tokenizer = _loaded(choice, **dropout)
    data: dict[str, Any] = {}
    references: dict[str, list[str]] = {}  # the data repeat a meaning for each of its sentences
    for name, part in parts.items():
        meanings, sentences = (part[column(part, names)] for names in (task.columns, task.label))
        prompts = [meaning_prompt(meaning) for meaning in meanings]
        answers = [f" {sentence}" for sentence in sentences]
        data[name] = _encoded(part, prompts, answers, tokenizer, settings)
        if name in task.evaluation:
            for meaning, sentence in zip(meanings, sentences, strict=True):
                references.setdefault(meaning, []).append(sentence)

    def write(trained: nn.Module, folder: Path) -> dict[str, float]:
        meanings = list(references)[: choice.texts]
        if not meanings:
            return {}
        decoding = {name: options[name] for name in _DECODING}
        prompts = [meaning_prompt(meaning) for meaning in meanings]
        written = continued(trained, tokenizer, prompts, settings.batch_size, **decoding)
        rows = [
            {"meaning_representation": meaning, "text": text, "references": references[meaning]}
            for meaning, text in zip(meanings, written, strict=True)
        ]
        _write_lines(folder / "texts.jsonl", rows)
        streams = list(zip_longest(*(references[meaning] for meaning in meanings)))
        return {"BLEU": float(sacrebleu.corpus_bleu(written, streams).score)}

    return PreparedRun(
        model=split_projections(model),
        train=data["train"],
        evaluation=data[task.evaluation[0]],
        collate=transformers.DataCollatorForSeq2Seq(tokenizer),
        metric="perplexity",
        afterwards=write,
    )


def prepare_instruct(choice: Choice, settings: Settings) -> PreparedRun:
    """Prepare LLaMA and instructions, all for training as in the paper."""
    family, task = choice.family, choice.family.tasks[choice.task]
    questions = _questions(choice.questions)
    part, (model, tokenizer) = read_data(choice)["train"], _loaded(choice)
    columns = (part[column(part, (name,))] for name in task.columns)
    prompts = [prompt(*fields) for fields in zip(*columns, strict=True)]
    data = _encoded(part, prompts, part[column(part, task.label)], tokenizer, settings)

    def answer(trained: nn.Module, folder: Path) -> dict[str, float]:
        """Answer all turns of each question; the prompt of a turn contains the earlier ones."""
        rows, limit = [], family.options["max_new_tokens"]
        for question, turns in questions:
            so_far, answers = "", []
            for turn in turns:
                so_far += f"\n\n{_ASK.format(turn)}" if so_far else prompt(turn)
                answers += continued(trained, tokenizer, [so_far], 1, max_new_tokens=limit)
                so_far += answers[-1]
            name = f"{choice.model_size}-{choice.method}-seed{choice.seed}"
            choices = [{"index": 0, "turns": answers}]
            rows.append({"question_id": question, "model_id": name, "choices": choices})
        if rows:
            _write_lines(folder / "answers.jsonl", rows)
        return {}

    collate = transformers.DataCollatorForSeq2Seq(tokenizer)
    return PreparedRun(model, data, None, collate, metric="training loss", afterwards=answer)


def _loaded(choice: Choice, **options: Any) -> tuple[Any, Any]:
    """The model and its tokenizer."""
    tokenizer = load_pretrained(transformers.AutoTokenizer, choice, trust_remote_code=False)
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "right"
    options |= {"trust_remote_code": False, "dtype": getattr(torch, choice.family.dtype)}
    kind = transformers.AutoModelForCausalLM
    return load_pretrained(kind, choice, use_safetensors=True, **options), tokenizer


def _encoded(
    part: Any, prompts: Sequence[str], answers: Sequence[str], tokenizer: Any, settings: Settings
) -> Any:
    """Tokens of prompts and answers, and labels that leave out the prompts."""

    def encode(_: Any, i: int) -> dict[str, list[int]]:
        question = tokenizer(prompts[i])["input_ids"]
        reply = tokenizer(answers[i], add_special_tokens=False)["input_ids"]
        reply = [*reply, tokenizer.eos_token_id]
        return {
            "input_ids": [*question, *reply][: settings.max_length],
            "labels": [*[_IGNORED] * len(question), *reply][: settings.max_length],
        }

    return part.map(encode, with_indices=True, remove_columns=part.column_names)


def meaning_prompt(meaning: str) -> str:
    """The prompt for slots and values of E2E."""
    return f"{meaning} ||"


def prompt(instruction: str, context: str = "") -> str:
    """The prompt of Alpaca for an instruction and an optional input."""
    if not context:
        return f"{_WITHOUT}\n\n{_ASK.format(instruction)}"
    return f"{_WITH}\n\n### Instruction:\n{instruction}\n\n### Input:\n{context}\n\n### Response:\n"


@torch.no_grad()
def continued(
    model: Any, tokenizer: Any, prompts: Sequence[str], batch_size: int, **options: Any
) -> list[str]:
    """Generate a continuation of each prompt."""
    model.eval()
    texts: list[str] = []
    for start in range(0, len(prompts), batch_size):
        batch = list(prompts[start : start + batch_size])
        tensors = {"return_tensors": "pt", "return_token_type_ids": False}
        inputs = tokenizer(batch, padding=True, padding_side="left", **tensors).to(model.device)
        options |= {"pad_token_id": tokenizer.eos_token_id, "do_sample": False}
        continuation = model.generate(**inputs, **options)[:, inputs["input_ids"].shape[1] :]
        texts += tokenizer.batch_decode(continuation, skip_special_tokens=True)
    return [text.strip() for text in texts]


def _questions(path: Path | None) -> list[tuple[int | str, list[str]]]:
    """Read questions of MT-Bench or Vicuna in the format of LLM-as-a-judge."""
    if path is None:
        return []
    with errors_as_resource_errors(path, "--questions"):
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
        return [(row["question_id"], row["turns"]) for row in rows]


def _write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a file with one JSON object per line."""
    writable_folder(path.parent)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")


class SplitProjection(nn.Module):
    """GPT-2's fused projection split into three layers, which can be adapted separately."""

    def __init__(self, fused: nn.Module) -> None:
        super().__init__()
        weights = fused.get_parameter("weight").detach().t().chunk(3)
        biases = fused.get_parameter("bias").detach().chunk(3)
        for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
            layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
            layer.weight, layer.bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
            setattr(self, name, layer)

    def forward(self, states: Any) -> Any:
        """Return queries, keys and values side by side."""
        return torch.cat([layer(states) for layer in self.children()], dim=-1)


def split_projections(model: nn.Module) -> nn.Module:
    """Replace every fused projection of GPT-2."""
    for module in list(model.modules()):
        fused: Any = getattr(module, "c_attn", None)
        if fused is not None:
            module.c_attn = SplitProjection(fused)
    return model

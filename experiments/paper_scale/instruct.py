"""Instruction tuning: fine-tune LLaMA on Alpaca-52K. The judge, GPT-4, is not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.paper_scale.loading import column, load_auto, package, read_data
from experiments.paper_scale.prepared import Paths, Prepared
from experiments.paper_scale.settings import Choice, Settings
from experiments.paper_scale.text import Texts, collate, continued, write_lines
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder

_WITH = "Below is an instruction that describes a task, paired with an input that provides further "
_WITH += "context. Write a response that appropriately completes the request."
_WITHOUT = "Below is an instruction that describes a task. Write a response that appropriately "
_WITHOUT += "completes the request."


def prepare(choice: Choice, settings: Settings, paths: Paths) -> Prepared:
    """Prepare the model and the instructions; as in the paper, all of them are for training."""
    transformers = package("transformers")
    task, family = choice.family.tasks[choice.task], choice.family
    source = paths.model or family.sizes[choice.size].model
    questions = _questions(paths.files.get("questions"))
    part = read_data(task, paths.data)["train"]
    tokenizer = load_auto(transformers.AutoTokenizer.from_pretrained, source)
    model = load_auto(
        transformers.AutoModelForCausalLM.from_pretrained,
        source,
        use_safetensors=True,
        dtype=getattr(torch, family.dtype),
    )
    given = [list(part[column(part, (name,))]) for name in task.columns]
    prompts = [prompt(*one) for one in zip(*given, strict=True)]
    answers = list(part[column(part, task.label)])
    longest = settings.max_length or family.options["max_length"]

    def answer(trained: nn.Module, folder: Path) -> dict[str, float]:
        if questions:
            tokens = family.options["max_new_tokens"]
            rows = [_answer(trained, tokenizer, question, choice, tokens) for question in questions]
            write_lines(writable_folder(folder) / "answers.jsonl", rows)
        return {}

    return Prepared(
        model=model,
        train=Texts(prompts, answers, tokenizer, longest),
        evaluation=None,
        collate=collate,
        metric="training loss",
        afterwards=answer,
    )


def prompt(instruction: str, context: str = "") -> str:
    """The prompt of Alpaca for an instruction and an optional input."""
    begin = _WITH if context else _WITHOUT
    middle = f"### Input:\n{context}\n\n" if context else ""
    return f"{begin}\n\n### Instruction:\n{instruction}\n\n{middle}### Response:\n"


def _questions(path: Path | None) -> list[dict[str, Any]]:
    """Read questions of MT-Bench or Vicuna in the format of LLM-as-a-judge."""
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        questions = [json.loads(line) for line in lines if line.strip()]
        known = all(isinstance(q["question_id"], int | str) and q["turns"] for q in questions)
    except (OSError, ValueError, KeyError, TypeError):
        known, questions = False, []
    if not known:
        msg = f"{path} has no questions: each line must be a JSON object with question_id and turns"
        raise InvalidArgumentError(msg)
    return questions


def _answer(
    model: nn.Module, tokenizer: Any, question: dict[str, Any], choice: Choice, tokens: int
) -> dict[str, Any]:
    """Answer all turns of a question; the prompt of a turn contains the earlier ones."""
    so_far, answers = "", []
    for turn in question["turns"]:
        so_far += prompt(turn) if not so_far else f"\n\n### Instruction:\n{turn}\n\n### Response:\n"
        answers += continued(model, tokenizer, [so_far], 1, max_new_tokens=tokens)
        so_far += answers[-1]
    return {
        "question_id": question["question_id"],
        "model_id": f"{choice.size}-{choice.method}-seed{choice.seed}",
        "choices": [{"index": 0, "turns": answers}],
    }

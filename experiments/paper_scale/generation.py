"""E2E with GPT-2, and Alpaca-52K with LLaMA: prompts, and the texts that are to follow them.

Adapters of GPT-2 fit only a model with split projections (:func:`split_projections`). The judge of
the answers to questions, GPT-4, is not run.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn

from experiments.paper_scale.loading import Prepared, column, load_pretrained, package, read_data
from experiments.paper_scale.settings import Choice, Settings
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder, write_atomically

_DECODING = ("num_beams", "length_penalty", "no_repeat_ngram_size", "max_new_tokens")
_IGNORED = -100  # label of a token that no loss counts
_WITH = "Below is an instruction that describes a task, paired with an input that provides further "
_WITH += "context. Write a response that appropriately completes the request."
_WITHOUT = "Below is an instruction that describes a task. Write a response that appropriately "
_WITHOUT += "completes the request."
_ASK = "### Instruction:\n{}\n\n### Response:\n"


def prepare(choice: Choice, settings: Settings) -> Prepared:
    """Prepare the model and the texts; only the answers count in the loss."""
    transformers = package("transformers")
    family, task = choice.family, choice.family.tasks[choice.task]
    is_e2e = family.name == "e2e"
    questions = _questions(choice.own.get("questions"))
    parts = read_data(task, choice.data)
    tokenizer = load_pretrained(transformers.AutoTokenizer, choice.source)
    tokenizer.pad_token, tokenizer.padding_side = tokenizer.eos_token, "right"
    dropout = dict.fromkeys(("attn_pdrop", "resid_pdrop", "embd_pdrop"), settings.dropout)
    model = load_pretrained(
        transformers.AutoModelForCausalLM,
        choice.source,
        use_safetensors=True,
        dtype=getattr(torch, family.dtype),
        **(dropout if is_e2e and settings.dropout is not None else {}),
    )
    longest = settings.max_length or family.options["max_length"]
    make, before = (meaning_prompt, " ") if is_e2e else (prompt, "")
    texts = {}
    for name, part in parts.items():
        given = zip(*(part[column(part, (one,))] for one in task.columns), strict=True)
        answers = [before + one for one in part[column(part, task.label)]]
        texts[name] = _encoded([make(*one) for one in given], answers, tokenizer, longest)

    def answer(trained: nn.Module, folder: Path) -> dict[str, float]:
        """Answer all turns of each question; the prompt of a turn contains the earlier ones."""
        rows, options = [], {"max_new_tokens": family.options["max_new_tokens"]}
        for question in questions:
            so_far, answers = "", []
            for turn in question["turns"]:
                so_far += f"\n\n{_ASK.format(turn)}" if so_far else prompt(turn)
                answers += continued(trained, tokenizer, [so_far], 1, **options)
                so_far += answers[-1]
            name = f"{choice.model_size}-{choice.method}-seed{choice.seed}"
            choices = [{"index": 0, "turns": answers}]
            rows.append({"question_id": question["question_id"], "model_id": name,
                         "choices": choices})  # fmt: skip
        if rows:
            _write_lines(folder, "answers.jsonl", rows)
        return {}

    if not is_e2e:  # as in the paper, all instructions are for training
        return Prepared(
            model, texts["train"], None, transformers.DataCollatorForSeq2Seq(tokenizer),
            "training loss", afterwards=answer,
        )  # fmt: skip
    evaluated = parts[task.evaluation[0]]
    references: dict[str, list[str]] = {}  # the data repeat a meaning for each of its sentences
    columns = (evaluated[column(evaluated, names)] for names in (task.columns, task.label))
    for meaning, sentence in zip(*columns, strict=True):
        references.setdefault(meaning, []).append(sentence)

    def write(trained: nn.Module, folder: Path) -> dict[str, float]:
        asked = list(references)[: choice.own.get("texts")]
        if not asked:
            return {}
        decoding = {name: family.options[name] for name in _DECODING}
        prompts = [meaning_prompt(one) for one in asked]
        written = continued(trained, tokenizer, prompts, settings.batch_size, **decoding)
        rows = [
            {"meaning_representation": one, "text": text, "references": references[one]}
            for one, text in zip(asked, written, strict=True)
        ]
        _write_lines(folder, "texts.jsonl", rows)
        return bleu(written, [references[one] for one in asked])

    return Prepared(
        split_projections(model), texts["train"], texts[task.evaluation[0]],
        transformers.DataCollatorForSeq2Seq(tokenizer), "perplexity",
        value=perplexity, afterwards=write,
    )  # fmt: skip


def _encoded(prompts: list[str], answers: list[str], tokenizer: Any, longest: int) -> Any:
    """Tokens of prompts and answers, and labels that leave out the prompts."""

    def encode(row: Mapping[str, str]) -> dict[str, list[int]]:
        given = tokenizer(row["prompt"])["input_ids"]
        rest = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
        rest = [*rest, tokenizer.eos_token_id]
        return {
            "input_ids": [*given, *rest][:longest],
            "labels": [*[_IGNORED] * len(given), *rest][:longest],
        }

    data = package("datasets").Dataset.from_dict({"prompt": prompts, "answer": answers})
    return data.map(encode, remove_columns=data.column_names)


def meaning_prompt(meaning: str) -> str:
    """The prompt for slots and values of E2E."""
    return f"{meaning} ||"


def prompt(instruction: str, context: str = "") -> str:
    """The prompt of Alpaca for an instruction and an optional input."""
    if not context:
        return f"{_WITHOUT}\n\n{_ASK.format(instruction)}"
    return f"{_WITH}\n\n### Instruction:\n{instruction}\n\n### Input:\n{context}\n\n### Response:\n"


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


@torch.no_grad()
def continued(
    model: nn.Module, tokenizer: Any, prompts: Sequence[str], batch_size: int, **options: Any
) -> list[str]:
    """Generate a continuation of each prompt."""
    model.eval()
    generate: Callable[..., torch.Tensor] = model.generate  # type: ignore[assignment]
    device = next(model.parameters()).device
    texts: list[str] = []
    for start in range(0, len(prompts), batch_size):
        given = tokenizer(
            list(prompts[start : start + batch_size]), return_tensors="pt",
            return_token_type_ids=False, padding=True, padding_side="left",
        ).to(device)  # fmt: skip
        written = generate(**given, pad_token_id=tokenizer.eos_token_id, do_sample=False, **options)
        own = written[:, given["input_ids"].shape[1] :]
        texts += tokenizer.batch_decode(own, skip_special_tokens=True)
    return [text.strip() for text in texts]


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


def _write_lines(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write a file with one JSON object per line."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path = writable_folder(folder) / name
    write_atomically(path, lambda target: target.write_text(text, encoding="utf-8"))


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
    """Replace every fused projection of GPT-2; other models stay as they are."""
    for module in list(model.modules()):
        fused = getattr(module, "c_attn", None)
        if isinstance(fused, nn.Module) and not isinstance(fused, SplitProjection):
            module.c_attn = SplitProjection(fused)
    return model

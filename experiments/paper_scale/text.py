"""Prompts and answers for causal language models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from loca_theory.sweeps.files import write_atomically

_IGNORED = -100


class Texts(torch.utils.data.Dataset):
    """Tokenised prompts with answers; only the answers count in the loss."""

    def __init__(
        self, prompts: Sequence[str], answers: Sequence[str], tokenizer: Any, longest: int
    ) -> None:
        self._pairs = list(zip(prompts, answers, strict=True))
        self._tokenizer, self._longest = tokenizer, longest

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, i: int) -> dict[str, list[int]]:
        prompt, answer = self._pairs[int(i)]
        given = self._tokenizer(prompt)["input_ids"]
        rest = self._tokenizer(answer, add_special_tokens=False)["input_ids"]
        ids = [*given, *rest, self._tokenizer.eos_token_id][: self._longest]
        labels = [_IGNORED] * min(len(given), len(ids)) + ids[len(given) :]
        return {"input_ids": ids, "labels": labels}


def collate(rows: Sequence[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Make a batch, padded on the right with tokens that no loss counts."""
    longest = max(len(row["input_ids"]) for row in rows)

    def padded(name: str, value: int) -> torch.Tensor:
        return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    return {
        "input_ids": padded("input_ids", 0),
        "labels": padded("labels", _IGNORED),
        "attention_mask": (torch.arange(longest)[None, :] < lengths[:, None]).long(),
    }


@torch.no_grad()
def continued(
    model: nn.Module, tokenizer: Any, prompts: Sequence[str], batch_size: int, **options: Any
) -> list[str]:
    """Generate a continuation of each prompt."""
    model.eval()
    device = next(model.parameters()).device
    texts: list[str] = []
    for start in range(0, len(prompts), batch_size):
        given = [tokenizer(prompt)["input_ids"] for prompt in prompts[start : start + batch_size]]
        longest = max(map(len, given))
        ids = torch.tensor([[tokenizer.eos_token_id] * (longest - len(g)) + g for g in given])
        mask = torch.tensor([[0] * (longest - len(g)) + [1] * len(g) for g in given])
        written = model.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids.to(device),
            attention_mask=mask.to(device),
            pad_token_id=tokenizer.eos_token_id,
            do_sample=False,
            **options,
        )
        texts += tokenizer.batch_decode(written[:, longest:], skip_special_tokens=True)
    return [text.strip() for text in texts]


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write a file with one JSON object per line."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(path, lambda target: target.write_text(text, encoding="utf-8"))

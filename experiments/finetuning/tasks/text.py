"""Task ``text``: docstrings by package, for a sentence transformer of 22.7 M parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.docstrings import PACKAGES, model_folder, splits
from experiments.finetuning.tasks.prepared import SPLITS, Split
from loca_theory.errors import ResourceError

# All seeds use the same split; they differ in the order of the data, the head and the adapter.
_SEED, _FRACTIONS = 0, (0.1, 0.2)


class MeanPooledClassifier(nn.Module):
    """The transformer, the mean of its last layer over the tokens, and a linear head."""

    def __init__(self, encoder: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
    ) -> Any:
        """Return the loss, and logits of shape (texts, classes)."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        hidden = found.last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        logits = self.head((hidden * mask).sum(1) / mask.sum(1))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def make(chosen: dict[str, Any]) -> tuple[dict[str, Split], Split]:
    """Make the splits of tokenised docstrings; the pretrained model stays in its package."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder(), local_files_only=True)
    parts = splits(_SEED, _FRACTIONS, chosen.get("files"))
    most = {"validation": chosen["validation"]}
    made: dict[str, Split] = {}
    for name, part in zip(SPLITS, parts, strict=True):
        if not part:
            msg = f"the installed packages have no docstrings for the {name} set; install "
            msg += f"{', '.join(PACKAGES)} with their source"
            raise ResourceError(msg)
        texts, labels = zip(*part[: most.get(name)], strict=True)
        options = {"padding": "max_length", "truncation": True, "max_length": chosen["length"]}
        tokens = tokenizer(list(texts), return_tensors="pt", **options)
        made[name] = {
            "input_ids": tokens["input_ids"],
            "attention_mask": tokens["attention_mask"],
            "labels": torch.tensor(labels),
        }
    return made, {"none": torch.zeros(0)}


def base(chosen: dict[str, Any], weights: Split) -> nn.Module:
    """The pretrained encoder with a new head."""
    del chosen, weights
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(
        model_folder(), local_files_only=True, add_pooling_layer=False
    )
    return MeanPooledClassifier(encoder, encoder.config.hidden_size, len(PACKAGES))

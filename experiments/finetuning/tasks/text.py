"""A sentence transformer of 22.7 M parameters, pretrained in a package, with a new head."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from experiments.docstrings import model_folder
from experiments.finetuning.tasks.prepared import Split


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
        ids, mask = (one[..., :longest].flatten(0, -2) for one in (input_ids, attention_mask))
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


def base(chosen: dict[str, Any], weights: Split) -> nn.Module:
    """The pretrained encoder with a new head."""
    del weights
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(
        model_folder(), local_files_only=True, add_pooling_layer=False
    )
    width: int = encoder.config.hidden_size
    return MeanPooledClassifier(encoder, width, chosen["classes"], pairs=chosen["pairs"])

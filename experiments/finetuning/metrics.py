"""Metrics of predictions: the accuracy, and the correlation with the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

DEFAULT_METRIC = "accuracy"


def predictions(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Predictions of each run: numbers or classes (R, n), or a causal model's next tokens."""
    if labels.is_floating_point():
        return logits[..., 0]
    return (logits[:, :, :-1] if labels.ndim == 2 else logits).argmax(-1)


def targets(labels: torch.Tensor) -> torch.Tensor:
    """The labels that :func:`predictions` are compared with: (n,), or next tokens (n, T − 1)."""
    return labels[:, 1:] if labels.ndim == 2 else labels


def accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """Fraction of correct predictions."""
    return float((predicted == labels).double().mean())


def correlation(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """Pearson's correlation, for two classes the Matthews coefficient; 0 if either is constant."""
    pair = torch.stack([predicted.double(), labels.double()])
    pair = pair - pair.mean(1, keepdim=True)
    product = pair.square().sum(1).prod()
    return float((pair[0] * pair[1]).sum() / product.sqrt()) if product > 0 else 0.0


def constant_score(
    labels: torch.Tensor, metric: Callable[[torch.Tensor, torch.Tensor], float]
) -> float:
    """The best score of predictions that are all the same."""
    return max(metric(torch.full_like(labels, float(label)), labels) for label in labels.unique())


METRICS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], float]] = {
    DEFAULT_METRIC: accuracy,
    "correlation": correlation,
}

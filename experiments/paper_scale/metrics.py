"""Metrics of a model, and those in the reports of the Trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import pearsonr

# Endings of the names that the Trainer reports besides the metrics.
_BESIDE = ("_runtime", "_per_second", "epoch")
_PERCENT = 100.0


def metrics_of(found: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of an evaluation by the Trainer, without its prefix and its extra numbers."""
    return {
        name.removeprefix("eval_"): value
        for name, value in found.items()
        if isinstance(value, float | int) and not name.endswith(_BESIDE)
    }


def measure(metric: str) -> Callable[[Any], dict[str, float]]:
    """Make a function that computes the metric in percent from the Trainer's predictions."""

    def score(found: Any) -> dict[str, float]:
        predictions = np.asarray(found.predictions, dtype=np.float64)
        labels = np.asarray(found.label_ids)
        if metric.startswith("Pearson"):
            value = pearson(predictions.reshape(-1), labels.reshape(-1))
        elif metric.startswith("Matthews"):
            value = matthews(predictions.argmax(-1), labels)
        else:
            value = float((predictions.argmax(-1) == labels).mean())
        return {metric: _PERCENT * value}

    return score


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation for two classes; 0 if predictions or labels are constant."""
    if np.ptp(predicted) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(np.corrcoef(predicted, labels)[0, 1])


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation; 0 if predictions or labels are constant."""
    if np.ptp(predicted) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(pearsonr(predicted, labels)[0])

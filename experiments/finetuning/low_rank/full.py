r"""Full fine-tuning with any optimiser: all parameters, one learning rate.

The gradient of a linear layer y = Wx on a batch with n tokens is the sum of n outer products,

.. math:: G = \sum_{t=1}^n g_t x_t^\top, \qquad g_t = \partial L / \partial y_t ,

so its rank is at most n.

- *SGD.* The increment after one step, −ηG, has rank at most n, and that after k steps, with or
  without momentum, at most kn: low rank before training is long enough to leave it.
- *Adam.* The first step divides every entry by its own modulus, so that the increment is
  :math:`-η\,\mathrm{sign}(G)` up to Adam's ε. The signs of a matrix of rank one have rank one;
  those of a matrix of rank n ≥ 2 have in general a higher one. They are not independent, though:
  since G has rank n, the n largest singular values of sign(G) hold at least the fraction

  .. math:: \frac{\langle \mathrm{sign}(G), G\rangle^2}{\|\mathrm{sign}(G)\|^2 \|G\|^2}
            = \frac{(\mathrm{mean}\,|G_{ij}|)^2}{\mathrm{mean}\,G_{ij}^2}

  of the energy if no entry of G is 0, which is 2/π for normal entries. Later steps divide by a mean
  over steps.
- *AdamW.* Decay λ adds about :math:`-λ\,W_0\sum_k η_k`, a small multiple of the weights.

Source: D. P. Kingma and J. Ba, Adam, ICLR 2015; I. Loshchilov and F. Hutter, Decoupled weight decay
regularization, ICLR 2019; the bound is this package's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from experiments.finetuning.tasks import Split
from loca_theory._lookup import find
from loca_theory.errors import InvalidArgumentError

_MOMENTUM, _DECAY = 0.9, 0.1
_EVALUATED_AT_ONCE = 200

_Maker = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
OPTIMIZERS: Mapping[str, _Maker] = {
    "SGD": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=_MOMENTUM),
    "Adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
    "AdamW": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, weight_decay=_DECAY),
}
"""Makers of the optimisers: SGD with momentum 0.9, Adam, AdamW with a weight decay of 0.1."""


@dataclass(frozen=True)
class Training:
    """What can vary between full fine-tunes of one model.

    Attributes:
        optimizer: A key of :data:`OPTIMIZERS`.
        rate: Highest learning rate of the schedule, of all parameters.
        steps: Number of steps.
        batch: Examples per step.
        examples: Size of the training set, which each seed draws from the task's pool; None for the
            whole pool.

    Raises:
        InvalidArgumentError: the optimiser is unknown, or the batch exceeds the training set.
    """

    optimizer: str
    rate: float
    steps: int
    batch: int
    examples: int | None = None

    def __post_init__(self) -> None:
        find("optimizer", self.optimizer, OPTIMIZERS)
        if self.examples is not None:
            self._check_batch(self.examples)

    def _check_batch(self, examples: int) -> None:
        if self.batch > examples:
            msg = (
                f"batch={self.batch} exceeds the {examples} training examples; use a smaller batch"
            )
            raise InvalidArgumentError(msg)

    def batches(self, pool: Split, rng: np.random.Generator) -> Iterator[Split]:
        """Random batches, one pass through the training set after the other.

        Args:
            pool: The examples that the training set is drawn from.
            rng: Draws the training set and the order.

        Raises:
            InvalidArgumentError: the batch exceeds the pool.
        """
        total = len(pool["labels"])
        mine = rng.permutation(total)[: self.examples]
        self._check_batch(len(mine))
        while True:
            order = rng.permutation(mine)
            for start in range(0, len(order) - self.batch + 1, self.batch):
                which = torch.from_numpy(order[start : start + self.batch])
                yield {name: values[which] for name, values in pool.items()}


def train(
    model: nn.Module,
    pool: Split,
    training: Training,
    rng: np.random.Generator,
    *,
    warmup: float = 0.0,
    most_gradient: float = math.inf,
) -> bool:
    """Train all parameters of a model in place; the rate rises linearly, then falls to 0.

    Args:
        model: A model that returns its loss for the arguments in ``pool``.
        pool: The examples that the training set is drawn from.
        training: Optimiser, rate, steps, batch and size of the training set.
        rng: Draws the training set and the batches.
        warmup: Fraction of the steps during which the rate rises.
        most_gradient: Norm to which larger gradients are scaled down.

    Returns:
        Whether the losses stayed finite; the training ends at one that is not.

    Raises:
        InvalidArgumentError: the batch exceeds the pool.
    """
    parameters = list(model.parameters())
    optimizer = OPTIMIZERS[training.optimizer](parameters, training.rate)
    steps, warm = training.steps, max(round(warmup * training.steps), 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(steps - warm, 1), 1.0)
    )
    batches = training.batches(pool, rng)
    model.train()
    for _ in range(steps):
        loss: torch.Tensor = model(**next(batches)).loss
        if not math.isfinite(float(loss.detach())):
            return False
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, most_gradient)
        optimizer.step()
        schedule.step()
    return True


def check_labels(labels: torch.Tensor) -> None:
    """Check that each example has one class.

    Raises:
        InvalidArgumentError: it does not, as in language models.
    """
    if labels.ndim != 1:
        msg = "only tasks with one label per example are fine-tuned here, not language models; "
        raise InvalidArgumentError(msg + "choose a task such as digits")


@torch.no_grad()
def evaluate(model: nn.Module, examples: Split) -> tuple[float, float]:
    """Mean loss and accuracy of a classifier.

    Args:
        model: A model that returns ``loss`` and ``logits`` (N, classes).
        examples: The arguments of the model; ``labels`` of shape (N,).

    Raises:
        InvalidArgumentError: the labels are not one class per example.
    """
    labels = examples["labels"]
    check_labels(labels)
    model.eval()
    loss, right = 0.0, 0
    for start in range(0, len(labels), _EVALUATED_AT_ONCE):
        batch = {k: v[start : start + _EVALUATED_AT_ONCE] for k, v in examples.items()}
        found: Any = model(**batch)
        loss += float(found.loss) * len(batch["labels"])
        right += int((found.logits.argmax(-1) == batch["labels"]).sum())
    return loss / len(labels), right / len(labels)

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
from loca_theory.errors import InvalidArgumentError

_MOMENTUM, _DECAY = 0.9, 0.1
_EVALUATED_AT_ONCE = 200

_Maker = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
OPTIMIZERS: Mapping[str, _Maker] = {
    "SGD": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=_MOMENTUM),
    "Adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
    "AdamW": lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate, weight_decay=_DECAY),
}


@dataclass(frozen=True)
class Training:
    """What can vary between full fine-tunes of one model."""

    optimizer: str
    rate: float  # highest of the schedule, of all parameters
    steps: int
    batch: int
    examples: int | None = None  # that each seed draws from the task's pool; None for all

    def batches(self, pool: Split, rng: np.random.Generator) -> Iterator[Split]:
        """Random batches, one pass through the training set after the other."""
        mine = rng.permutation(len(pool["labels"]))[: self.examples]
        if self.batch > len(mine):
            msg = f"batch={self.batch} exceeds the {len(mine)} training examples; use a smaller one"
            raise InvalidArgumentError(msg)
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
    """Train all parameters in place; return whether the losses stayed finite.

    The rate rises linearly during the fraction ``warmup`` of the steps, then falls to 0. Gradients
    with a larger norm than ``most_gradient`` are scaled down.
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


@torch.no_grad()
def evaluate(model: nn.Module, examples: Split) -> tuple[float, float]:
    """Mean loss and accuracy of a classifier."""
    model.eval()
    labels, loss, right = examples["labels"], 0.0, 0
    for start in range(0, len(labels), _EVALUATED_AT_ONCE):
        batch = {k: v[start : start + _EVALUATED_AT_ONCE] for k, v in examples.items()}
        found: Any = model(**batch)
        loss += float(found.loss) * len(batch["labels"])
        right += int((found.logits.argmax(-1) == batch["labels"]).sum())
    return loss / len(labels), right / len(labels)

"""Real data and real pretrained models, small enough for two cores.

A task is prepared once: its data and, unless an installed package contains one, a pretrained model
are written to a folder as safetensors. All workers then read these files only.

The module of a task (``generation``, ``images``, ``packages`` or ``published``) has
``make(chosen)``, which returns the splits and the examples to pretrain on or None;
``model(chosen)``, which returns the model; and, if it pretrains, ``BATCH``.
"""

from __future__ import annotations

from torch import Tensor

Split = dict[str, Tensor]
"""Examples of a split as arguments of the model; the first dimension is that of the examples."""

SPLITS = ("train", "validation", "test")

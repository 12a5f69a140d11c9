"""LoCA's search in the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from loca_theory.adapters.search.following import follow
from loca_theory.errors import ResourceError

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ResourceError(
        'LoCACallback needs transformers: pip install "loca-theory[adapters]"'
    ) from error


class LoCACallback(TrainerCallback):
    """Follows the Trainer's optimiser: ``Trainer(..., callbacks=[LoCACallback()])``.

    A checkpoint of the Trainer has all that is needed to resume.
    """

    _following: Any

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add the parameters of the search, before the Trainer makes its optimiser.

        Raises:
            InvalidArgumentError: the model has no LoCA layer.
        """
        follow(kwargs["model"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Follow the optimiser.

        Raises:
            InvalidArgumentError: it cannot be followed, see :func:`~loca_theory.adapters.follow`.
        """
        self._following = follow(kwargs["model"], kwargs["optimizer"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop following."""
        self._following.remove()

"""LoCA in the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from loca_theory.adapters.schedule import (
    HOW_TO_TRAIN_LOCATIONS,
    LocationsNotTrainedError,
    LocationTraining,
)


class LoCACallback(TrainerCallback):
    """Keeps the schedule in step with the Trainer, also when it resumes from a checkpoint.

    The Trainer needs an optimiser that knows the locations::

        groups = parameter_groups(model, lr=1e-3, location_lr=1e-4)
        Trainer(model, args, ..., optimizers=(torch.optim.AdamW(groups), None),
                callbacks=[LoCACallback()])

    Args:
        training: What to keep in step; None for that of the model, which a PEFT model has.

    Raises:
        LocationsNotTrainedError: training begins with an optimiser that lacks the locations.
    """

    def __init__(self, training: LocationTraining | None = None) -> None:
        self._training = training

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The process group exists by now, and the model is not wrapped yet."""
        for training in self._found(kwargs.get("model")):
            training.prepare_distributed()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue where the checkpoint stood.

        Raises:
            LocationsNotTrainedError: the optimiser lacks the locations.
        """
        for training in self._found(kwargs.get("model")):
            training.go_to(state.global_step)
            if training.phase is not None and not training.holds_locations(kwargs["optimizer"]):
                raise LocationsNotTrainedError(HOW_TO_TRAIN_LOCATIONS)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A step of the optimiser has been made."""
        for training in self._found(kwargs.get("model")):
            training.go_to(state.global_step)

    def _found(self, model: Any) -> list[LocationTraining]:
        if self._training is not None:
            return [self._training]
        model = getattr(model, "module", model)  # inside DistributedDataParallel
        by_adapter = getattr(getattr(model, "base_model", None), "location_training", {})
        active = getattr(model, "active_adapters", [])
        return [training for name, training in by_adapter.items() if name in active]

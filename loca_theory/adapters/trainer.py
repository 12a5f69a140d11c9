"""LoCA in the Trainer of transformers."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.adapters.training import (
    HOW_TO_TRAIN_LOCATIONS,
    LocationsNotTrainedError,
    LocationTraining,
)


class LoCACallback(TrainerCallback):
    """A Trainer callback that resumes a schedule in mid-phase and checks the optimiser.

    The :class:`~loca_theory.adapters.LocationTraining` itself counts the steps of the optimiser. A
    model whose locations are already frozen is trained without a schedule.

    The Trainer needs an optimiser that holds the locations::

        groups = parameter_groups(model, lr=1e-3, location_lr=1e-4)
        Trainer(model, args, ..., optimizers=(torch.optim.AdamW(groups), None),
                callbacks=[LoCACallback()])

    Args:
        training: The training to resume; None for those of the model's trainable layers.

    Raises:
        LocationsNotTrainedError: training begins with an optimiser that does not hold the
            locations.
    """

    def __init__(self, training: LocationTraining | None = None) -> None:
        self._training = training

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Prepare for distributed training, after the process group and before the wrapping."""
        for training in self._found(kwargs.get("model")):
            training.prepare_distributed()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Continue at the step of the checkpoint.

        Raises:
            LocationsNotTrainedError: the optimiser does not hold the locations.
        """
        for training in self._found(kwargs.get("model")):
            if not training.is_over:
                training.go_to(state.global_step)
            if training.phase is not None and not training.holds_locations(kwargs["optimizer"]):
                raise LocationsNotTrainedError(HOW_TO_TRAIN_LOCATIONS)

    def _found(self, model: Any) -> list[LocationTraining]:
        if self._training is not None:
            return [self._training]
        found = {
            id(module.training_schedule): module.training_schedule
            for module in (model.modules() if model is not None else ())
            if isinstance(module, CosineSpectrum)
            and module.training_schedule is not None
            and any(parameter.requires_grad for parameter in module.parameters())
        }
        return list(found.values())

"""Application of a schedule to the spectra of a model while an optimiser trains it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from loca_theory.adapters.parameters import Phase, check_locations
from loca_theory.adapters.processes import is_distributed
from loca_theory.adapters.schedule import AlternatingSchedule
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError, LocaTheoryError


class LocationsNotTrainedError(LocaTheoryError):
    """Locations are to be learned, but the optimiser does not hold them."""


class LocationTraining:
    """Applies an :class:`AlternatingSchedule` to spectra, one optimiser step at a time.

    It counts a step whenever an optimiser that holds the locations has made one. Gradient
    accumulation, skipped steps of mixed precision and repeated forward passes of checkpointing
    therefore do not count. If the optimiser is not one of torch's, pass ``automatic=False`` and
    call :meth:`step` in the training loop. If an optimiser steps the coefficients but none holds
    the locations, a warning is given once, with the remedy.

    Under distributed data parallelism, create it after the process group and before the model is
    wrapped.

    Args:
        model: A model that contains spectra, or an iterable of spectra.
        schedule: The schedule. Spectra that prune and regrow move components at the end of each
            period (B_a + B_l steps) until B_s, and learn their coefficients throughout. Spectra
            with ``init_locations="gradient"`` learn no coefficients until their initial locations
            are found.
        automatic: Whether to count the steps of torch's optimisers.

    Raises:
        InvalidArgumentError: the model has no spectrum that learns its locations.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[CosineSpectrum],
        schedule: AlternatingSchedule,
        *,
        automatic: bool = True,
    ) -> None:
        modules = model.modules() if isinstance(model, nn.Module) else model
        self.spectra = [
            m
            for m in modules
            if isinstance(m, CosineSpectrum) and (m.learns_locations or m.needs_initialisation)
        ]
        if schedule.joint and any(s.prunes_and_regrows for s in self.spectra):
            msg = "joint=True learns locations by a gradient, but these spectra prune and regrow; "
            msg += "set joint=False"
            raise InvalidArgumentError(msg)
        last = schedule.alternating_steps
        if any(s.prunes_and_regrows and s.learns_locations for s in self.spectra) and (
            last is not None and 0 < last < schedule.period
        ):
            msg = f"alternating_steps={last} ends before every layer has pruned and regrown; set "
            msg += f"it to at least {schedule.period} (coefficient_steps + location_steps)"
            raise InvalidArgumentError(msg)
        if not self.spectra and schedule.alternating_steps != 0:
            msg = "the model has no LoCA layer that learns locations; "
            msg += "create one with learn_locations=True"
            raise InvalidArgumentError(msg)
        self.schedule, self.automatic = schedule, automatic
        self._learning = [s for s in self.spectra if s.learns_locations]
        self._step, self._idle_steps, self._warned = 0, 0, False
        self._stepped: WeakSet[torch.optim.Optimizer] = WeakSet()
        self._phase: Phase | None = None
        for spectrum in self.spectra:
            # The registry of trainings is weak: this reference keeps the training alive.
            spectrum.training_schedule = self
        self.go_to(0)
        _watch(self)

    @property
    def is_over(self) -> bool:
        """Whether all locations are final."""
        return not any(s.learns_locations or s.needs_initialisation for s in self.spectra)

    @property
    def steps_done(self) -> int:
        """Number of optimiser steps so far."""
        return self._step

    @property
    def phase(self) -> Phase | None:
        """Which parameters are being learned; None once the locations are frozen."""
        is_over = not any(s.learns_locations for s in self.spectra)
        return None if is_over else self.schedule.phase(self._step)

    def parameters(self) -> list[nn.Parameter]:
        """The continuous locations that may still be learned."""
        return [s.locations for s in self.spectra if s.learns_locations and s.locations is not None]

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Count one optimiser step, and apply the schedule.

        Args:
            optimizer: The optimiser that made the step. If given, the momentum of components that
                move is reset.
        """
        moved_on = [s for s in self.spectra if s.phase != "coefficients"]
        check_locations(moved_on)
        for spectrum in moved_on:
            spectrum.refresh(is_checked=True)
        for spectrum, offset in zip(self.spectra, self._offsets(), strict=True):
            is_due = self.schedule.prunes_and_regrows(self._step, offset)
            if spectrum.needs_initialisation:
                is_due = self._step + 1 >= self.schedule.recorded_steps
            if spectrum.is_recording and is_due:
                moved = spectrum.prune_and_regrow()
                if optimizer is not None:
                    _forget(optimizer, spectrum.coefficients, moved)
        self.go_to(self._step + 1)

    def go_to(self, step: int) -> None:
        """Continue as if this many steps had been done, for instance those of a checkpoint.

        Raises:
            InvalidArgumentError: the next step would learn locations that are already frozen.
        """
        frozen = [s.name for s in self._learning if not s.learns_locations]
        if frozen and self.schedule.phase(step) is not None:
            msg = f"{frozen[0]}: its locations are frozen, and step {step} would learn them; "
            msg += "create a new model to start again"
            raise InvalidArgumentError(msg)
        if step == self._step and self._phase == self.schedule.phase(step) and step:
            return
        if step != self._step + 1:
            for spectrum in self.spectra:
                spectrum.forget()
        self._step, self._phase = step, self.schedule.phase(step)
        self.prepare_distributed()
        for spectrum in self.spectra:
            if self._phase is None:
                spectrum.freeze_locations()
            elif spectrum.phase != self._phase and spectrum.learns_locations:
                spectrum.set_phase("coefficients" if spectrum.prunes_and_regrows else self._phase)
        self._record()

    def _record(self) -> None:
        """Start recording in the spectra that need the gradient of the next step."""
        schedule = self.schedule
        for spectrum, offset in zip(self.spectra, self._offsets(), strict=True):
            is_due = schedule.records(self._step, offset)
            is_due = is_due and spectrum.prunes_and_regrows and spectrum.learns_locations
            if is_due or spectrum.needs_initialisation:
                turn = (self._step + offset) // schedule.period
                spectrum.start_recording(schedule.progress(self._step), turn)

    def _offsets(self) -> list[int]:
        count = len(self.spectra)
        return [number * self.schedule.period // count for number in range(count)]

    def prepare_distributed(self) -> None:
        """Call ``keep_all_in_graph`` of all spectra if training is distributed."""
        if is_distributed():
            for spectrum in self.spectra:
                spectrum.keep_all_in_graph()

    def state_dict(self) -> dict[str, int]:
        """State for a checkpoint, to continue in mid-phase."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint. Load the model first."""
        self.go_to(state["step"])

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Remove gradients of parameters that are not being learned before an optimiser steps."""
        del optimizer  # the gradients are the same for every optimiser
        for spectrum in self.spectra:
            if is_distributed() or spectrum.needs_initialisation:
                spectrum.drop_idle_gradients()

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the step of an optimiser if it trains the spectra."""
        if not self.automatic:
            return
        marks = self._marks()
        if not marks:
            return
        held = _held(optimizer)
        locations = self.parameters()
        if any(id(p) in held for p in marks):
            self._idle_steps = 0
            if self._step == 0:
                self._check_groups(optimizer)
            is_new = optimizer not in self._stepped
            if is_new and len(self._stepped):
                # A second optimiser, with other parameters, in the same step of the model.
                self._stepped.add(optimizer)
                return
            self._stepped = WeakSet([optimizer])
            self.step(optimizer)
            if self._phase is None:
                for p in locations:  # their moments are no longer needed
                    optimizer.state.pop(p, None)
        elif any(id(s.coefficients) in held for s in self.spectra):
            self._idle_steps += 1
            if self._idle_steps >= self.schedule.coefficient_steps and not self._warned:
                self._warned = True
                warnings.warn(HOW_TO_TRAIN_LOCATIONS, stacklevel=3)

    def _marks(self) -> list[nn.Parameter]:
        """Parameters that identify the optimisers whose steps count; none after the schedule."""
        marks = [] if self.phase is None else self.parameters()
        for s in self.spectra:
            has_locations = s.locations is not None and s.learns_locations
            if not has_locations and (
                s.needs_initialisation or (s.prunes_and_regrows and s.learns_locations)
            ):
                marks.append(s.coefficients)
        return marks

    def _check_groups(self, optimizer: torch.optim.Optimizer) -> None:
        mine = {id(p) for p in self.parameters()}
        for group in optimizer.param_groups:
            here = [id(p) in mine for p in group["params"]]
            if any(here) and (group.get("weight_decay") or not all(here)):
                warnings.warn(OWN_GROUP, stacklevel=4)
                return

    def holds_locations(self, optimizer: Any) -> bool:
        """Whether an optimiser holds all locations that are to be learned."""
        held = _held(optimizer)
        return all(id(p) in held for p in self.parameters())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stepped": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._stepped = WeakSet()
        _watch(self)


HOW_TO_TRAIN_LOCATIONS = (
    "the optimiser has no LoCA locations, so they stay random: build it from "
    "loca_theory.adapters.parameter_groups(model, lr=..., location_lr=...) "
    "(with the Trainer: optimizers=(optimizer, None)), or set alternating_steps=0 to fix them"
)


OWN_GROUP = (
    "the LoCA locations share a group of the optimiser with other parameters, or are decayed; on "
    "their scale of [0, 1] they need a learning rate of their own and no decay: "
    "loca_theory.adapters.parameter_groups(model, lr=..., location_lr=...)"
)


def _held(optimizer: Any) -> set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def _forget(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, moved: torch.Tensor) -> None:
    """Reset the momentum of components that moved.

    The mean square of their gradients, by which Adam scales, is not reset: the old value is the
    best available estimate of the new one.
    """
    for name, value in optimizer.state.get(parameter, {}).items():
        if name in ("exp_avg", "momentum_buffer") and isinstance(value, torch.Tensor):
            value.masked_fill_(moved.to(value.device), 0.0)


_live: WeakSet[LocationTraining] = WeakSet()
_hooks: list[Any] = []


def _watch(training: LocationTraining) -> None:
    """Call the training before and after each step of any optimiser, as long as it exists."""
    _live.add(training)
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_tell("before_step")))
        _hooks.append(register_optimizer_step_post_hook(_tell("after_step")))


def _tell(event: str) -> Callable[..., None]:
    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for training in list(_live):
            getattr(training, event)(optimizer)

    return hook

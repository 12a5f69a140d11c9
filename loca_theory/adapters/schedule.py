"""When coefficients and when locations are learned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from loca_theory.adapters.spectrum import CosineSpectrum, Phase
from loca_theory.errors import InvalidArgumentError, LocaTheoryError


class LocationsNotTrainedError(LocaTheoryError):
    """The locations are to be learned, but nothing moves them."""


@dataclass(frozen=True)
class AlternatingSchedule:
    r"""Coefficients for B_a steps, locations for B_l steps, in turn, for B_s steps in all.

    Then the locations are frozen and the coefficients go on. Steps are steps of the optimiser.
    With t the steps done, the phase is that of the coefficients if t ≥ B_s or
    t mod (B_a + B_l) < B_a. The variants of the paper's ablation are settings: V1,
    ``alternating_steps=0``; V2, ``alternating_steps=None``; V3, ``joint=True``; V4 and V5 are
    ``location_gradient="forward"`` and ``"backward"`` of the layer.

    Attributes:
        coefficient_steps: B_a, at least 1.
        location_steps: B_l, at least 1.
        alternating_steps: B_s; 0 for fixed random locations, None for no end. The paper uses 120
            to 3000, and recommends 10 to 20% of all steps.
        joint: Learn both in every one of the B_s steps.
        as_printed: Count t from 1 as Algorithm 1 does, which makes its first phase a step shorter
            than all later ones (B_a − 1).

    Raises:
        InvalidArgumentError: a number of steps out of range.

    Source: section "Alternating Optimization Strategy" and Algorithm 1 of the paper.
    """

    coefficient_steps: int = 10
    location_steps: int = 20
    alternating_steps: int | None = 600
    joint: bool = False
    as_printed: bool = False

    def __post_init__(self) -> None:
        for name in ("coefficient_steps", "location_steps"):
            steps = getattr(self, name)
            if not isinstance(steps, Integral) or steps < 1:
                msg = f"{name} must be an integer of at least 1, not {steps}"
                raise InvalidArgumentError(msg)
        steps = self.alternating_steps
        if steps is not None and (not isinstance(steps, Integral) or steps < 0):
            msg = f"alternating_steps must be an integer of at least 0, or None, not {steps}"
            raise InvalidArgumentError(msg)

    def phase(self, step: int) -> Phase | None:
        """What is learned in the step after ``step`` finished ones; None once all is settled."""
        if self.alternating_steps is not None and step >= self.alternating_steps:
            return None
        if self.joint:
            return "both"
        period = self.coefficient_steps + self.location_steps
        within = (step + self.as_printed) % period
        return "coefficients" if within < self.coefficient_steps else "locations"


class LocationTraining:
    """Takes spectra through an :class:`AlternatingSchedule`, a step at a time.

    It counts by itself: whenever an optimiser that holds the locations has made a step, so that
    gradient accumulation, skipped steps of mixed precision and repeated forward passes of
    checkpointing do not count. A loop whose optimiser is not one of torch's calls :meth:`step`
    instead (with ``automatic=False``). If the coefficients are stepped and the locations are in
    no optimiser, it warns once and says what to add.

    Under distributed data parallelism, make it after the process group and before the model is
    wrapped.

    Args:
        model: A model that contains spectra (or an iterable of them).
        schedule: When what is learned.
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
        self.spectra = [m for m in modules if isinstance(m, CosineSpectrum) and m.learns_locations]
        if not self.spectra and schedule.alternating_steps != 0:
            msg = "the model has no LoCA layer that learns locations"
            raise InvalidArgumentError(msg)
        self.schedule, self.automatic = schedule, automatic
        self._step, self._idle_steps, self._warned = 0, 0, False
        self._phase: Phase | None = None
        for spectrum in self.spectra:
            # Who keeps the model keeps its schedule.
            spectrum.training_schedule = self
        self.go_to(0)
        _watch(self)

    @property
    def steps_done(self) -> int:
        """Optimiser steps so far."""
        return self._step

    @property
    def phase(self) -> Phase | None:
        """What is being learned; None once the locations are frozen."""
        return self.schedule.phase(self._step) if self.parameters() else None

    def parameters(self) -> list[nn.Parameter]:
        """The continuous locations that may still be learned."""
        return [s.locations for s in self.spectra if s.learns_locations and s.locations is not None]

    def step(self) -> None:
        """One optimiser step has been made."""
        for spectrum in self.spectra:
            spectrum.refresh()
        self.go_to(self._step + 1)

    def go_to(self, step: int) -> None:
        """Continue as after this many steps, for instance those of a checkpoint.

        Raises:
            InvalidArgumentError: the locations are to be learned again, and were frozen.
        """
        frozen = [s.name for s in self.spectra if not s.learns_locations]
        if frozen and self.schedule.phase(step) is not None:
            msg = f"{frozen[0]}: its locations are frozen, and step {step} would learn them; "
            msg += "make the model anew to begin again"
            raise InvalidArgumentError(msg)
        if step == self._step and self._phase == self.schedule.phase(step) and step:
            return
        self._step, self._phase = step, self.schedule.phase(step)
        self.prepare_distributed()
        for spectrum in self.spectra:
            if self._phase is None:
                spectrum.freeze_locations()
            elif spectrum.phase != self._phase and spectrum.learns_locations:
                spectrum.set_phase(self._phase)

    def prepare_distributed(self) -> None:
        """If there are several processes, keep all parameters in the graph; see the spectra."""
        if _is_distributed():
            for spectrum in self.spectra:
                spectrum.keep_all_in_graph()

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint needs to continue in mid-phase."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint. Load the model first."""
        self.go_to(state["step"])

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimiser is about to step: it shall find gradients of the phase alone."""
        if _is_distributed() and _held(optimizer):
            for spectrum in self.spectra:
                spectrum.drop_idle_gradients()

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimiser has stepped."""
        if not self.automatic or self.phase is None:
            return
        held = _held(optimizer)
        locations = self.parameters()
        if any(id(p) in held for p in locations):
            self._idle_steps = 0
            if self._step == 0:
                self._check_groups(optimizer)
            self.step()
            if self._phase is None:
                for p in locations:  # their moments are of no use any more
                    optimizer.state.pop(p, None)
        elif any(id(s.coefficients) in held for s in self.spectra):
            self._idle_steps += 1
            if self._idle_steps >= self.schedule.coefficient_steps and not self._warned:
                self._warned = True
                warnings.warn(HOW_TO_TRAIN_LOCATIONS, stacklevel=3)

    def _check_groups(self, optimizer: torch.optim.Optimizer) -> None:
        mine = {id(p) for p in self.parameters()}
        for group in optimizer.param_groups:
            here = [id(p) in mine for p in group["params"]]
            if any(here) and (group.get("weight_decay") or not all(here)):
                warnings.warn(OWN_GROUP, stacklevel=4)
                return

    def holds_locations(self, optimizer: Any) -> bool:
        """Whether an optimiser has all the locations that are to be learned."""
        held = _held(optimizer)
        return all(id(p) in held for p in self.parameters())

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
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


def parameter_groups(
    model: nn.Module, *, lr: float, location_lr: float = 1e-4, weight_decay: float = 0.0
) -> list[dict[str, Any]]:
    """Groups for an optimiser: all that is trainable, and the locations on their own.

    Args:
        model: A model with LoCA layers. The locations belong to the groups from the start, though
            they ask for gradients in their phases only.
        lr: Learning rate of everything else.
        location_lr: Learning rate of the locations, on their scale of [0, 1]. The paper: 1e-4
            with AdamW, which moves a location of a 768-wide layer by at most 0.08 places a step.
        weight_decay: Decay of everything else; locations and vectors that are no coefficients
            (biases, normalisation) have none.

    Raises:
        InvalidArgumentError: nothing is trainable.

    Source: appendix "Hyperparameters" of the paper, which decays no locations.
    """
    spectra = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    locations = [s.locations for s in spectra if s.locations is not None and _in_use(s)]
    # Under a phase of the locations the coefficients ask for no gradient either.
    coefficients = {id(s.coefficients): s.coefficients for s in spectra if _in_use(s)}
    apart = {id(p) for p in locations}
    decayed, plain = list(coefficients.values()), []
    for p in model.parameters():
        if p.requires_grad and id(p) not in apart and id(p) not in coefficients:
            (decayed if p.ndim > 1 else plain).append(p)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "lr": lr, "weight_decay": weight_decay},
        {"params": plain, "lr": lr, "weight_decay": 0.0},
        {"params": locations, "lr": location_lr, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        msg = "the model has no trainable parameter; was its adapter loaded for inference?"
        raise InvalidArgumentError(msg)
    return groups


def _in_use(spectrum: CosineSpectrum) -> bool:
    return any(p.requires_grad for p in spectrum.parameters())


def _held(optimizer: Any) -> set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def _is_distributed() -> bool:
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


_live: WeakSet[LocationTraining] = WeakSet()
_hooks: list[Any] = []


def _watch(training: LocationTraining) -> None:
    """Tell it of the steps of every optimiser, as long as it lives."""
    _live.add(training)
    if not _hooks:
        _hooks.append(register_optimizer_step_pre_hook(_tell("before_step")))
        _hooks.append(register_optimizer_step_post_hook(_tell("after_step")))


def _tell(event: str) -> Callable[..., None]:
    def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for training in list(_live):
            getattr(training, event)(optimizer)

    return hook

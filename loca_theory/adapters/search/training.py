"""Taking the layers of a model through a schedule while an optimiser steps."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from loca_theory.adapters.checks import check_choice, check_scaling
from loca_theory.adapters.search.gradient import GradientSearch, step_locations
from loca_theory.adapters.search.names import (
    SEARCHES,
    STARTS,
    InitialLocations,
    LocationSearch,
    is_prune_and_regrow,
)
from loca_theory.adapters.search.optimizers import (
    follow_steps,
    forget_momentum,
    held,
    rate_of,
    skips,
)
from loca_theory.adapters.search.regrow import GradientStart, PruneAndRegrow
from loca_theory.adapters.search.schedule import AlternatingSchedule, Phase
from loca_theory.adapters.search.zero import is_in_zero
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError

LayerSearch = GradientSearch | GradientStart | PruneAndRegrow


class LocationTraining:
    """Moves the indices of a model's layers while any optimiser trains their coefficients.

    It counts the steps of whichever optimiser of torch holds the coefficients, so gradient
    accumulation, skipped steps of mixed precision and repeated forward passes of checkpointing do
    not count. It steps the continuous locations itself, by AdamW without weight decay at
    ``location_lr`` times the optimiser's learning rate as a fraction of its initial one (at most
    1). With several processes it averages the gradients of the locations.

    In location phases it takes the coefficients' gradients away. An optimiser that moves parameters
    without a gradient, such as LBFGS with a history of other parameters, moves them all the same;
    one that steps inside the backward pass leaves the locations where they are.

    An optimiser that is not one of torch's needs ``automatic=False``, :meth:`before_step` once the
    gradients are there, and :meth:`step` after its own step.

    Args:
        model: A model that contains LoCA layers, or an iterable of spectra.
        schedule: Which steps learn coefficients, and which learn locations. The prune-and-regrow
            searches always learn coefficients, and move components at the end of each period
            (``coefficient_steps + location_steps``), until ``alternating_steps``.
        search: How locations are searched for. Along a gradient, by a difference of
            :func:`~loca_theory.locations.gradient.location_gradient`: ``central`` (the paper),
            ``forward``, ``backward`` or ``eight-direction``. Or across the spectrum, by
            :mod:`loca_theory.locations.prune_and_regrow`: ``reselect``, ``swap`` or ``swap-raw``.
        init_locations: ``random``, or ``gradient`` for the locations where the gradients of the
            first batches predict the largest decrease of the loss. Coefficients are not learned
            until these are found.
        location_lr: Learning rate of the locations on their scale of [0, 1]. The paper's 1e-4 moves
            a location of a 768-wide layer by at most 0.08 of an index per step.
        automatic: Whether to count the steps of torch's optimisers.

    Attributes:
        spectra: The layers.

    Raises:
        InvalidArgumentError: the model has no LoCA layer, or the settings exclude each other.

    Source: sections "Estimating location gradient" and "Alternating Optimization Strategy" of the
    paper.
    """

    def __init__(
        self,
        model: nn.Module | Iterable[CosineSpectrum],
        schedule: AlternatingSchedule,
        *,
        search: LocationSearch = "central",
        init_locations: InitialLocations = "random",
        location_lr: float = 1e-4,
        automatic: bool = True,
    ) -> None:
        check_choice("search", search, SEARCHES)
        check_choice("init_locations", init_locations, STARTS)
        check_scaling("location_lr", location_lr)
        check_schedule(schedule, search)
        modules = model.modules() if isinstance(model, nn.Module) else model
        self.spectra = [m for m in modules if isinstance(m, CosineSpectrum)]
        if not self.spectra:
            msg = "the model has no LoCA layer"
            raise InvalidArgumentError(msg)
        for spectrum in self.spectra:
            if spectrum.coefficients.is_inference():
                msg = f"{spectrum.name}: it was made inside torch.inference_mode() and cannot be "
                msg += "trained; make the model outside"
                raise InvalidArgumentError(msg)
        self.schedule, self.search, self.automatic = schedule, search, automatic
        self.location_lr = location_lr
        self._step, self._idle_steps = 0, 0
        self._warned = self._warned_of_gradients = self._replaced = False
        # Coefficients that were stepped since the last count, and those that are waited for.
        self._round: dict[int, torch.optim.Optimizer] = {}
        self._expected: set[int] | None = None
        # How many steps of optimisers were seen, and how many when each began its own.
        self._counted = 0
        self._counted_before: dict[int, int] = {}
        for spectrum in self.spectra:
            starts = init_locations == "gradient"
            self._use(spectrum, self._start(spectrum) if starts else self._main(spectrum))
        self._begin(0)
        follow_steps(self)

    # --- where it stands ---

    @property
    def is_over(self) -> bool:
        """Whether all indices are final."""
        return not self._searches()

    @property
    def steps_done(self) -> int:
        """Optimiser steps so far."""
        return self._step

    @property
    def phase(self) -> Phase | None:
        """What is being learned; None once the indices are final."""
        return None if self.is_over else self.schedule.phase(self._step)

    def _searches(self) -> list[LayerSearch]:
        return [search for search, _ in self._with_offsets()]

    def _search_of(self, spectrum: CosineSpectrum) -> LayerSearch | None:
        """The search of a layer; None if it is over, or another training's."""
        return spectrum.search if spectrum.location_training is self else None

    def _use(self, spectrum: CosineSpectrum, search: LayerSearch | None) -> None:
        spectrum.search = search
        spectrum.location_training = self  # it lives as long as the model

    def _start(self, spectrum: CosineSpectrum) -> LayerSearch:
        return GradientStart(spectrum, use_curvature=self.search != "swap-raw")

    def resting(self) -> list[torch.Tensor]:
        """The coefficients that the next step does not learn."""
        return [s.spectrum.coefficients for s in self._searches() if not s.learns_coefficients]

    def _main(self, spectrum: CosineSpectrum) -> LayerSearch | None:
        """The search after the start, if it is not over."""
        if self.schedule.is_over(self._step):
            return None
        if is_prune_and_regrow(self.search):
            return PruneAndRegrow(spectrum, self.search)
        rule: Any = self.search
        return GradientSearch(spectrum, rule)

    # --- steps ---

    def before_step(self) -> None:
        """Keep only the gradients of the current phase; the optimiser is about to step."""
        for search in self._searches():
            search.before_step()

    def step(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Count an optimiser step that was just made, and move the locations that are due.

        Args:
            optimizer: The optimiser that stepped, if known; its momentum is reset for components
                that move.

        Raises:
            InvalidArgumentError: a location has become NaN.
        """
        self._step_locations(optimizer)
        for search, offset in self._with_offsets():
            if isinstance(search, GradientSearch) or not search.is_recording:
                continue
            is_start = isinstance(search, GradientStart)
            if is_start:
                is_due = self._step + 1 >= self.schedule.recorded_steps
            else:
                is_due = self.schedule.prunes_and_regrows(self._step, offset)
            if is_due:
                moved = search.move()
                a = search.spectrum.coefficients
                if (mine := self._round.get(id(a), optimizer)) is not None:
                    forget_momentum(mine, a, moved)
                if is_start:
                    self._use(search.spectrum, self._main(search.spectrum))
        self._begin(self._step + 1)

    def finish(self) -> None:
        """End all searches; the indices are final."""
        for search in self._searches():
            search.finish()
            self._use(search.spectrum, None)
        self._replaced = False

    def indices_replaced(self, spectrum: CosineSpectrum) -> None:
        """End the search of a layer whose indices were loaded; load_state_dict() takes it up again.

        Args:
            spectrum: The layer.
        """
        self._use(spectrum, None)
        self._replaced = True

    def warn_of_gradients_by_hand(self) -> None:
        """Warn once that coefficients have a gradient in a location phase, and locations none."""
        if not self._warned_of_gradients:
            self._warned_of_gradients = True
            warnings.warn(HOW_TO_DIFFERENTIATE, stacklevel=3)

    def _begin(self, step: int) -> None:
        """Prepare the next step, when ``step`` steps are done."""
        schedule, phase = self.schedule, self.schedule.phase(step)
        self._step = step
        for search, offset in self._with_offsets():
            if isinstance(search, GradientStart):
                search.start_recording(0.0, 0)
            elif phase is None:
                search.finish()
                self._use(search.spectrum, None)
            elif isinstance(search, GradientSearch):
                if search.phase != phase:
                    search.set_phase(phase)
            elif schedule.records(step, offset):
                search.start_recording(schedule.progress(step), (step + offset) // schedule.period)

    def _with_offsets(self) -> list[tuple[LayerSearch, int]]:
        """The searches, and by how many steps each is ahead, so that not all record at once."""
        period, count = self.schedule.period, len(self.spectra)
        found = [(self._search_of(spectrum), n) for n, spectrum in enumerate(self.spectra)]
        return [(search, n * period // count) for search, n in found if search is not None]

    def _step_locations(self, optimizer: torch.optim.Optimizer | None) -> None:
        moving = [
            search
            for search in self._searches()
            if isinstance(search, GradientSearch) and search.phase != "coefficients"
        ]
        if not moving:
            return
        parts: dict[tuple[float, bool], list[GradientSearch]] = {}
        for search in moving:
            a = search.spectrum.coefficients
            mine = self._round.get(id(a), optimizer)
            parts.setdefault(rate_of(mine, a), []).append(search)
        for (part, maximize), searches in parts.items():
            step_locations(searches, self.location_lr * part, maximize=maximize)

    # --- following optimisers ---

    def begin_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimiser begins a step; those that it makes by another one inside are the same."""
        self._counted_before[id(optimizer)] = self._counted

    def before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep only the gradients of the current phase in the layers that will be stepped.

        Raises:
            InvalidArgumentError: DeepSpeed holds the coefficients and steps them itself.
        """
        parameters = held(optimizer) if self.automatic and not skips(optimizer) else ()
        in_zero = self.automatic and any(is_in_zero(s.coefficients) for s in self.spectra)
        if in_zero and self._take_used():  # a model that is used no more disturbs no optimiser
            raise InvalidArgumentError(HOW_TO_DEEPSPEED)
        for search in self._searches():
            if id(search.spectrum.coefficients) in parameters:
                search.before_step(getattr(optimizer, "grad_scale", None))

    def after_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Count a step of the model once every optimiser of its coefficients has stepped."""
        was_inside = self._counted_before.pop(id(optimizer), self._counted) < self._counted
        if not self.automatic or was_inside or skips(optimizer):
            return
        parameters = held(optimizer)
        if self._replaced and any(id(s.coefficients) in parameters for s in self.spectra):
            self._replaced = False
            warnings.warn(HOW_TO_RESUME, stacklevel=3)
        trained = {id(a) for s in self._searches() if (a := s.spectrum.coefficients).requires_grad}
        mine = trained & parameters
        if mine:
            self._warned = True  # an optimiser holds the coefficients: no warning is needed
            self._counted += 1
            if mine & self._round.keys():  # no optimiser holds the others
                self._expected = set(self._round)
                self._finish_round(optimizer)
            self._round |= dict.fromkeys(mine, optimizer)
            expected = trained if self._expected is None else self._expected & trained
            if expected <= self._round.keys():
                self._finish_round(optimizer)
        elif self._is_trained_in_vain():
            self._idle_steps += 1
            if self._idle_steps >= self.schedule.period and not self._warned:
                self._warned = True
                warnings.warn(HOW_TO_TRAIN, stacklevel=3)

    def _finish_round(self, optimizer: torch.optim.Optimizer) -> None:
        self.step(optimizer)
        self._round = {}

    def _is_trained_in_vain(self) -> bool:
        """Whether layers were used and got gradients since this was last asked."""
        return any(search.spectrum.coefficients.grad is not None for search in self._take_used())

    def _take_used(self) -> list[LayerSearch]:
        """The searches of layers that were used since this was last asked."""
        used = [search for search in self._searches() if search.was_used]
        for search in used:
            search.was_used = False
        return used

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_round": {}, "_expected": None, "_counted_before": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        follow_steps(self)

    # --- checkpoints ---

    def state_dict(self) -> dict[str, Any]:
        """The state that, with the model's own state dict, lets training continue exactly.

        Returns:
            ``step``, ``search``, and for each of ``layers`` its name, shape, a digest of its
            indices, its stage (``start``, ``main`` or ``over``), and its tensors and numbers.
        """
        layers = []
        for spectrum in self.spectra:
            search = self._search_of(spectrum)
            layer: dict[str, Any] = {
                "name": spectrum.name,
                "shape": list(spectrum._size),
                "indices": _digest(spectrum),
                "stage": _stage(search),
            }
            if search is not None:
                layer |= search.state_dict()
            layers.append(layer)
        return {"step": self._step, "search": self.search, "layers": layers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`. Load the model first.

        Raises:
            InvalidArgumentError: it is the state of another model, or of another search.
        """
        layers: Sequence[dict[str, Any]] = state["layers"]
        if state["search"] != self.search:
            msg = f"the state was saved by the search {state['search']!r}, and this one is "
            msg += f"{self.search!r}; use the settings that it was saved with"
            raise InvalidArgumentError(msg)
        self._check_layers(layers)
        if int(state["step"]) < 0:
            msg = f"the state of the search is damaged: {state['step']} steps"
            raise InvalidArgumentError(msg)
        self._step, self._replaced = int(state["step"]), False
        phase = self.schedule.phase(self._step)
        for spectrum, layer in zip(self.spectra, layers, strict=True):
            stages = {"start": self._start, "main": self._main, "over": lambda _: None}
            search = stages[layer["stage"]](spectrum)
            self._use(spectrum, search)
            if search is not None:
                search.load_state_dict(layer)
                if isinstance(search, GradientSearch) and phase is not None:
                    search.set_phase(phase)

    def _check_layers(self, layers: Sequence[dict[str, Any]]) -> None:
        other = "the state of the search belongs to another adapter: "
        if len(layers) != len(self.spectra):
            msg = f"{other}it has {len(layers)} layers, and this model has {len(self.spectra)}"
            raise InvalidArgumentError(msg)
        for spectrum, layer in zip(self.spectra, layers, strict=True):
            p, q = layer["shape"]
            if (p, q) != spectrum._size:
                msg = f"{other}its layer {layer['name']} is {p}×{q}, and {spectrum.name} is "
                msg += "×".join(map(str, spectrum._size))
                raise InvalidArgumentError(msg)
            if layer["indices"] != _digest(spectrum):
                msg = f"{other}the indices of {spectrum.name} differ; load the model of the same "
                msg += "checkpoint first"
                raise InvalidArgumentError(msg)
            _check_tensors(spectrum, layer)


def check_schedule(schedule: AlternatingSchedule, search: LocationSearch) -> None:
    """Check that a search can follow a schedule.

    Raises:
        InvalidArgumentError: it cannot.
    """
    if not is_prune_and_regrow(search):
        return
    if schedule.joint:
        msg = f"joint=True learns locations along a gradient, and {search!r} has none"
        raise InvalidArgumentError(msg)
    last = schedule.alternating_steps
    if last is not None and 0 < last < schedule.period:
        msg = f"alternating_steps={last} ends before every layer has pruned and regrown: each does "
        msg += f"so every {schedule.period} steps (coefficient_steps + location_steps)"
        raise InvalidArgumentError(msg)


HOW_TO_TRAIN = (
    "no optimiser holds the coefficients of LoCA, so neither they nor their locations are trained; "
    "build the optimiser from the model's parameters after the adapter was added"
)
HOW_TO_DIFFERENTIATE = (
    "a coefficient of LoCA has a gradient and its location has none, so the locations stay where "
    "they are; compute gradients by loss.backward(), not by torch.autograd.grad"
)
HOW_TO_DEEPSPEED = (
    "LoCA's search does not see the steps of DeepSpeed by itself: after deepspeed.initialize(), "
    "call follow_deepspeed(training, engine) of loca_theory.adapters with its LocationTraining"
)
HOW_TO_RESUME = (
    "indices of LoCA layers were loaded without the state of their search, so the search is over; "
    "to go on with it, load LocationTraining.state_dict() of the same checkpoint as well, or give "
    "the Trainer callbacks=[LoCACallback()]"
)


def _check_tensors(spectrum: CosineSpectrum, layer: dict[str, Any]) -> None:
    """Check the shapes of a layer's tensors, that they are finite, and that none is missing."""
    p, q = spectrum._size
    pairs, recorded = spectrum.indices.shape, ((p, q), (p,), (q,))
    shapes = {"locations": pairs, "exp_avg": pairs, "exp_avg_sq": pairs, "step": ()}
    sums = {f"recorded_{number}": shape for number, shape in enumerate(recorded)}
    for group in (shapes, sums):
        found = {name: layer[name] for name in group if name in layer}
        is_whole = not found or found.keys() == group.keys()
        is_right = all(tuple(t.shape) == tuple(group[name]) for name, t in found.items())
        if not (is_whole and is_right and all(bool(t.isfinite().all()) for t in found.values())):
            msg = f"the state of the search is damaged at {spectrum.name}"
            raise InvalidArgumentError(msg)


def _stage(search: LayerSearch | None) -> str:
    if search is None:
        return "over"
    return "start" if isinstance(search, GradientStart) else "main"


def _digest(spectrum: CosineSpectrum) -> str:
    indices = spectrum.indices.detach().cpu().numpy().astype("<i8")
    return hashlib.sha256(indices.tobytes()).hexdigest()

"""Searches across the whole spectrum: components are pruned, and regrown at better locations."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from loca_theory.adapters.search.optimizers import loss_scale
from loca_theory.adapters.search.processes import is_distributed
from loca_theory.adapters.search.recording import handle_of, record, record_if_due
from loca_theory.adapters.search.sharding import fill_with_zeros, has_gradient, whole
from loca_theory.adapters.search.statistics import GradientStatistics
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.locations.gradient import LocationGradient
from loca_theory.locations.prune_and_regrow import (
    components_to_drop,
    largest,
    most_moved,
    reselect,
    swap,
)


class RecordingSearch:
    """Base of the searches that record the gradient of the whole spectrum before they move.

    Args:
        spectrum: Whose components move.
    """

    rule: LocationGradient = "central"
    was_used = False
    may_record = learns_coefficients = True
    dropped: torch.Tensor | None = None
    kept: torch.Tensor | None = None

    def __init__(self, spectrum: CosineSpectrum) -> None:
        self.spectrum = spectrum
        self._statistics: GradientStatistics | None = None
        self._pass = -1  # torch's number of the latest backward pass
        self._handle = handle_of(self)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_handle"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._handle = handle_of(self)

    @property
    def is_recording(self) -> bool:
        """Whether the gradient of the step under way is recorded."""
        return self._statistics is not None

    def start_recording(self, progress: float, turn: int) -> None:
        """Start recording with the next step, or extend the recording by it.

        Args:
            progress: How much of the search is over, in [0, 1].
            turn: Consecutive number of the move.
        """
        del progress, turn
        if self._statistics is not None:
            self._statistics.keep()
            self._statistics.steps += 1
            return
        self._statistics = self._new_statistics()

    def _new_statistics(self) -> GradientStatistics:
        spectrum, a = self.spectrum, self.spectrum.coefficients
        dtype = torch.promote_types(a.dtype, torch.float32)
        # The coefficients may be on the meta device until they are loaded.
        return GradientStatistics(spectrum._size, spectrum.scaling, dtype, spectrum.indices.device)

    # --- what the spectrum calls ---

    def inputs(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The coefficients; locations are not differentiated."""
        return a, None

    def record(self, x: torch.Tensor | None, y: torch.Tensor) -> torch.Tensor:
        """The same y, whose gradient is recorded.

        Args:
            x: Inputs (..., q) of outputs y (..., p), or None if y is ΔW, (p, q).
            y: Outputs, or ΔW.
        """
        if torch.compiler.is_compiling():
            return record_if_due(y, None if x is None else x.detach(), self._handle)
        return y if self._statistics is None else record(self, x, y)

    def add(self, x: torch.Tensor | None, g: torch.Tensor) -> None:
        """Add to the recording, if one is under way; compiled code calls this in every step.

        Passes of a step that a GradScaler has skipped are dropped once zero_grad() was called.
        """
        if self._statistics is None:
            return
        number = torch._C._current_graph_task_id()
        if number != self._pass:
            self._pass = number
            self._statistics.drop(unless=has_gradient(self.spectrum))
        self._statistics.add(x, g)

    def follow(self) -> None:
        """Move to the device of the coefficients."""
        if self._statistics is not None:
            self._statistics.to(self.spectrum.indices.device)

    # --- steps ---

    def before_step(self, scale: torch.Tensor | None = None) -> None:
        """Keep what was recorded: the optimiser is about to step."""
        del scale
        if self._statistics is not None:
            self._statistics.keep()

    def forget(self) -> None:
        """Stop recording, and discard what was recorded."""
        self._statistics = None

    def finish(self) -> None:
        """Stop. These searches keep the indices distinct, so nothing else is needed."""
        self.forget()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers to continue from, in the middle of a recording as well."""
        return {} if self._statistics is None else self._statistics.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.forget()
        if "recorded_steps" in state:
            self._statistics = self._new_statistics()
            self._statistics.load_state_dict(state)

    def _recorded(self) -> GradientStatistics | None:
        """The statistics of all processes; None if there was no gradient."""
        statistics = self._statistics
        if statistics is not None and is_distributed():
            statistics.gather()
        return statistics if statistics else None

    def _move(self, after: torch.Tensor, *, resets: bool) -> torch.Tensor:
        """Move the components to flat indices ``after``, (B,); returns which moved."""
        if is_distributed():
            torch.distributed.broadcast(after, 0)  # ties may break differently elsewhere
        spectrum = self.spectrum
        q = spectrum._size[1]
        moved = after != self._flat_indices()
        spectrum.set_indices(torch.stack([after // q, after % q], dim=1))
        if resets:
            fill_with_zeros(spectrum.coefficients, moved)
        if spectrum.coefficients.grad is not None:
            fill_with_zeros(spectrum.coefficients.grad, moved)  # that of another location
        return moved

    def _flat_indices(self) -> torch.Tensor:
        indices = self.spectrum.indices
        return indices[:, 0] * self.spectrum._size[1] + indices[:, 1]


class GradientStart(RecordingSearch):
    """A start at the locations with the largest predicted decrease of the loss.

    The coefficients are not learned while the first steps are recorded.

    Args:
        spectrum: Whose components move.
        use_curvature: Whether to divide the squared gradient by the curvature.
    """

    learns_coefficients = False

    def __init__(self, spectrum: CosineSpectrum, *, use_curvature: bool) -> None:
        super().__init__(spectrum)
        self._use_curvature = use_curvature

    def before_step(self, scale: torch.Tensor | None = None) -> None:
        """Keep the optimiser from learning coefficients at locations that will be left."""
        super().before_step(scale)
        self.spectrum.coefficients.grad = None

    @torch.no_grad()
    def move(self) -> torch.Tensor:
        """Move all components; returns which moved, (B,)."""
        statistics = self._recorded()
        self.forget()
        spectrum = self.spectrum
        if statistics is None:
            msg = f"{spectrum.name}: no gradient was recorded, so its locations stay random"
            warnings.warn(msg, stacklevel=2)
            return torch.zeros_like(self._flat_indices(), dtype=torch.bool)
        decreases = statistics.predicted_decreases(use_curvature=self._use_curvature)
        after = largest(decreases, spectrum.indices.shape[0])
        return self._move(after, resets=spectrum.zero_init)


class PruneAndRegrow(RecordingSearch):
    """Moves the components that matter least to the locations that promise most.

    Args:
        spectrum: Whose components move.
        search: ``reselect``, ``swap`` or ``swap-raw``; see
            :mod:`loca_theory.locations.prune_and_regrow`.
    """

    def __init__(self, spectrum: CosineSpectrum, search: str) -> None:
        super().__init__(spectrum)
        self._is_raw, self._reselects = search == "swap-raw", search == "reselect"
        self._progress, self._loss_scale = 0.0, 1.0
        self._turn: int | None = None  # of the move whose components are still to be chosen
        self._drop(None)

    def _drop(self, which: torch.Tensor | None) -> None:
        """Leave components out; None for none. Compiled code multiplies by ``kept`` in any case."""
        self.dropped = which
        if self._reselects:
            kept = torch.ones_like(self._flat_indices(), dtype=torch.bool)
            self.kept = kept if which is None else kept.index_fill(0, which, value=False)

    def start_recording(self, progress: float, turn: int) -> None:
        """Record the next step as well; ``reselect`` leaves some components out meanwhile.

        It leaves them out of the layer's output, as dropout does, in training mode or whenever
        gradients are enabled. ΔW itself has them.
        """
        if self._statistics is None:
            self._progress, self._turn = progress, turn
            self._choose()
        super().start_recording(progress, turn)

    def _choose(self) -> None:
        """Choose what to leave out, unless the coefficients are still to be loaded."""
        a = self.spectrum.coefficients
        if self._reselects and self._turn is not None and not a.is_meta:
            chosen = components_to_drop(whole(a), self._progress, self._turn)
            self._drop(chosen.sort().values)
            self._turn = None

    def inputs(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The coefficients; locations are not differentiated."""
        self._choose()
        return super().inputs(a)

    def follow(self) -> None:
        """Move to the device of the coefficients."""
        super().follow()
        device = self.spectrum.indices.device
        self._drop(None if self.dropped is None else self.dropped.to(device))

    def forget(self) -> None:
        """Stop recording, and leave no component out."""
        super().forget()
        self._turn = None
        self._drop(None)

    def before_step(self, scale: torch.Tensor | None = None) -> None:
        """Note by what the loss was scaled: a²h needs the curvature of the loss itself."""
        super().before_step(scale)
        if self.is_recording and not (self._is_raw or self._reselects):
            self._loss_scale = loss_scale()

    @torch.no_grad()
    def move(self) -> torch.Tensor:
        """Move components as the recorded gradients suggest; returns which moved, (B,)."""
        statistics, out = self._recorded(), self.dropped
        self.forget()
        spectrum = self.spectrum
        if statistics is None:
            return torch.zeros_like(self._flat_indices(), dtype=torch.bool)
        decreases = statistics.predicted_decreases(use_curvature=not self._is_raw)
        before = self._flat_indices()
        if out is not None:
            return self._move(reselect(before, out, decreases), resets=True)
        curvature = None
        if not self._is_raw:
            curvature = statistics.curvature(spectrum.indices) / self._loss_scale**2
        count = most_moved(before.shape[0], self._progress, use_curvature=not self._is_raw)
        a = whole(spectrum.coefficients).to(decreases.dtype)
        return self._move(swap(a, before, decreases, curvature, count), resets=True)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers to continue from, in the middle of a recording as well."""
        state = {**super().state_dict(), "progress": self._progress}
        return state if self.dropped is None else {**state, "dropped": self.dropped}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        super().load_state_dict(state)
        self._progress = float(state["progress"])
        if "dropped" in state:
            self._drop(state["dropped"].to(self.spectrum.indices.device))

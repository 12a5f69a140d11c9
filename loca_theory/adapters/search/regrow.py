"""Searches across the whole spectrum: components are pruned, and regrown at better locations."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from loca_theory.adapters.search.recording import handle_of, record
from loca_theory.adapters.search.schedule import Phase
from loca_theory.adapters.search.sharding import (
    fill_with_zeros,
    is_distributed,
    is_sharded,
    whole,
)
from loca_theory.adapters.search.statistics import GradientStatistics
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
        spectrum: A :class:`~loca_theory.adapters.CosineSpectrum`, whose components move.
    """

    may_record, has_started = True, False
    phase: Phase | None = "coefficients"

    def __init__(self, spectrum: Any) -> None:
        self.spectrum = spectrum
        self._pass = -1  # torch's number of the latest backward pass
        self._handle = handle_of(self)

    @property
    def is_recording(self) -> bool:
        """Whether the gradient of the step under way is recorded."""
        return self.spectrum.recorded is not None

    def inputs(self, a: torch.Tensor, _offset: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The coefficients; locations are not differentiated."""
        return a, None

    def record(self, x: torch.Tensor | None, y: torch.Tensor) -> torch.Tensor:
        """The same y, whose gradient is recorded.

        Args:
            x: Inputs (..., q) of outputs y (..., p), or None if y is ΔW, (p, q).
            y: Outputs, or ΔW.
        """
        return record(y, None if x is None else x.detach(), self._handle)

    def add(self, x: torch.Tensor | None, g: torch.Tensor) -> None:
        """Add to the recording, if one is under way; compiled code calls this in every step.

        Passes of a step that a GradScaler has skipped are dropped once zero_grad() was called.
        """
        recorded, a = self.spectrum.recorded, self.spectrum.coefficients
        if recorded is None:
            return
        number = torch._C._current_graph_task_id()
        # FSDP2 may keep the gradient elsewhere, and its passes are never dropped.
        if number != self._pass and not is_sharded(a):
            recorded.drop_unless(a.grad)
        self._pass = number
        recorded.add(x, g)

    def before_step(self) -> None:
        """Keep what was recorded: the optimiser is about to step."""
        if self.is_recording:
            self.spectrum.recorded.keep()

    def restore(self) -> None:
        """Nothing to do for a step that the optimiser has skipped."""

    def finish(self) -> None:
        """Nothing to do: these searches keep the indices distinct."""

    def _take_recorded(self) -> GradientStatistics | None:
        """Stop recording; the statistics, or None if there was no gradient."""
        recorded, self.spectrum.recorded = self.spectrum.recorded, None
        return recorded if recorded is not None and recorded.has_gradient() else None

    def _move(self, after: torch.Tensor, *, resets: bool = True) -> torch.Tensor:
        """Move the components to flat indices ``after``, (B,); returns which moved."""
        if is_distributed():
            torch.distributed.broadcast(after, 0)  # ties may break differently elsewhere
        spectrum = self.spectrum
        q = spectrum._size[1]
        moved = after != self._flat_indices()
        spectrum.has_moved = spectrum.has_moved | moved.any()
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
    """

    def begin(self) -> None:
        """Record the next step as well."""
        if not self.is_recording:
            self.spectrum.start_recording()

    def before_step(self) -> None:
        """Keep the optimiser from learning coefficients at locations that will be left."""
        super().before_step()
        self.spectrum.coefficients.grad = None

    def is_due(self) -> bool:
        """Whether all components move after the step under way."""
        return self.spectrum.steps_done + 1 >= self.spectrum.start_steps

    @torch.no_grad()
    def prune_and_regrow(self, _loss_scale: float) -> torch.Tensor:
        """Move all components; returns which moved, (B,)."""
        recorded, spectrum = self._take_recorded(), self.spectrum
        if recorded is None:
            msg = f"{spectrum.name}: no gradient was recorded, so its locations stay random"
            warnings.warn(msg, stacklevel=2)
            return torch.zeros_like(self._flat_indices(), dtype=torch.bool)
        by_curvature = spectrum.location_search != "swap-raw"
        decreases = recorded.predicted_decreases(use_curvature=by_curvature)
        after = largest(decreases, spectrum.indices.shape[0])
        return self._move(after, resets=spectrum.zero_init)


class PruneAndRegrow(RecordingSearch):
    """Moves the components that matter least to the locations that promise most.

    See :mod:`loca_theory.locations.prune_and_regrow`.
    """

    def __init__(self, spectrum: Any) -> None:
        super().__init__(spectrum)
        self._reselects = spectrum.location_search == "reselect"
        if self._reselects and spectrum.dropped is None:
            spectrum.dropped = torch.zeros_like(self._flat_indices(), dtype=torch.bool)

    def begin(self) -> None:
        """Record the next step if it is due; ``reselect`` leaves some components out meanwhile.

        It leaves them out of the layer's output, as dropout does, in training mode or whenever
        gradients are enabled. ΔW itself has them.
        """
        spectrum, schedule = self.spectrum, self.spectrum.schedule
        step, ahead = spectrum.steps_done, spectrum.ahead
        if self.is_recording or not schedule.records(step, ahead):
            return
        spectrum.start_recording()
        if self._reselects:
            turn = (step + ahead) // schedule.period
            a = whole(spectrum.coefficients)
            chosen = components_to_drop(a, schedule.progress(step), turn)
            spectrum.dropped[chosen] = True

    def is_due(self) -> bool:
        """Whether components move after the step under way."""
        spectrum = self.spectrum
        is_end = spectrum.schedule.prunes_and_regrows(spectrum.steps_done, spectrum.ahead)
        return self.is_recording and is_end

    @torch.no_grad()
    def prune_and_regrow(self, loss_scale: float) -> torch.Tensor:
        """Move components as the recorded gradients suggest; returns which moved, (B,).

        Args:
            loss_scale: By what the loss was multiplied: a²h needs the curvature of the loss itself.
        """
        spectrum, schedule = self.spectrum, self.spectrum.schedule
        recorded, before = self._take_recorded(), self._flat_indices()
        out = spectrum.dropped.nonzero()[:, 0] if self._reselects else None
        if out is not None:
            spectrum.dropped.zero_()
        if recorded is None:
            return torch.zeros_like(before, dtype=torch.bool)
        use_curvature = spectrum.location_search != "swap-raw"
        decreases = recorded.predicted_decreases(use_curvature=use_curvature)
        if out is not None:
            return self._move(reselect(before, out, decreases))
        first = schedule.first_recorded(spectrum.steps_done, spectrum.start_steps)
        steps = spectrum.steps_done + 1 - first
        curvature = None
        if use_curvature:
            curvature = recorded.curvature(spectrum.indices, steps) / loss_scale**2
        progress = schedule.progress(first)
        count = most_moved(before.shape[0], progress, use_curvature=use_curvature)
        a = whole(spectrum.coefficients).to(decreases.dtype)
        return self._move(swap(a, before, decreases, curvature, count))

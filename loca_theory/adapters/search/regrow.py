"""Searches across the whole spectrum: components are pruned, and regrown at better locations."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from loca_theory.adapters.search.recording import handle_of, record
from loca_theory.adapters.search.schedule import Phase
from loca_theory.adapters.search.sharding import is_distributed, is_sharded, shared_out, whole
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

    may_record, start, _resets = True, None, True
    phase: Phase | None = "coefficients"

    def __init__(self, spectrum: Any) -> None:
        self.spectrum, self.use_curvature = spectrum, spectrum.location_search != "swap-raw"
        self._pass = -1  # torch's number of the latest backward pass
        self._handle = handle_of(self)

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
        if self.spectrum.recorded is not None:
            self.spectrum.recorded.keep()

    def restore(self) -> None:
        """Nothing to do for a step that the optimiser has skipped."""

    def finish(self) -> None:
        """Nothing to do: these searches keep the indices distinct."""

    @torch.no_grad()
    def prune_and_regrow(self, loss_scale: float) -> torch.Tensor:
        """Move components as the recorded gradients suggest; returns which moved, (B,).

        Args:
            loss_scale: By what the loss was multiplied: a²h needs the curvature of the loss itself.
        """
        spectrum = self.spectrum
        q, (row, column) = spectrum._size[1], spectrum.indices.unbind(1)
        recorded, spectrum.recorded = spectrum.recorded, None
        before = row * q + column
        after = self._choose(recorded, before, loss_scale)
        if spectrum.dropped is not None:
            spectrum.dropped.zero_()
        if is_distributed():
            torch.distributed.broadcast(after, 0)  # ties may break differently elsewhere
        moved = after != before
        spectrum.has_moved = spectrum.has_moved | moved.any()
        spectrum.set_indices(torch.stack([after // q, after % q], dim=1))
        a = spectrum.coefficients
        for values in (a, a.grad) if self._resets else (a.grad,):  # those of another location
            if values is not None:
                values.masked_fill_(shared_out(moved, values), 0.0)
        return moved

    def _choose(self, recorded: Any, before: torch.Tensor, loss_scale: float) -> torch.Tensor:
        """The flat indices, (B,), to which the components at ``before`` move."""
        raise NotImplementedError


class GradientStart(RecordingSearch):
    """A start at the locations with the largest predicted decrease of the loss.

    The coefficients are not learned while the first steps are recorded, and stay as they are drawn.
    """

    _resets = False

    def begin(self) -> None:
        """Record the next step as well."""
        if self.spectrum.recorded is None:
            self.spectrum.start_recording()

    def before_step(self) -> None:
        """Keep the optimiser from learning coefficients at locations that will be left."""
        super().before_step()
        self.spectrum.coefficients.grad = None

    def is_due(self) -> bool:
        """Whether all components move after the step under way."""
        return self.spectrum.steps_done + 1 >= self.spectrum.start_steps

    def _choose(self, recorded: Any, before: torch.Tensor, loss_scale: float) -> torch.Tensor:  # noqa: ARG002
        if not recorded.has_gradient():
            msg = f"{self.spectrum.name}: no gradient was recorded, so its locations stay random"
            warnings.warn(msg, stacklevel=2)
            return before
        decreases = recorded.predicted_decreases(use_curvature=self.use_curvature)
        return largest(decreases, len(before))


class PruneAndRegrow(RecordingSearch):
    """Moves the components that matter least to the locations that promise most.

    See :mod:`loca_theory.locations.prune_and_regrow`.
    """

    def __init__(self, spectrum: Any) -> None:
        super().__init__(spectrum)
        self._reselects = spectrum.location_search == "reselect"
        if self._reselects and spectrum.dropped is None:
            spectrum.dropped = torch.zeros_like(spectrum.indices[:, 0], dtype=torch.bool)

    def begin(self) -> None:
        """Record the next step if it is due; ``reselect`` leaves some components out meanwhile.

        It leaves them out of the layer's output, as dropout does, in training mode or whenever
        gradients are enabled. ΔW itself has them.
        """
        spectrum, schedule = self.spectrum, self.spectrum.schedule
        step, ahead = spectrum.steps_done, spectrum.ahead
        if spectrum.recorded is not None or not schedule.records(step, ahead):
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
        return is_end and spectrum.recorded is not None

    def _choose(self, recorded: Any, before: torch.Tensor, loss_scale: float) -> torch.Tensor:
        spectrum, schedule = self.spectrum, self.spectrum.schedule
        if not recorded.has_gradient():
            return before
        decreases = recorded.predicted_decreases(use_curvature=self.use_curvature)
        if self._reselects:
            return reselect(before, spectrum.dropped.nonzero()[:, 0], decreases)
        done = spectrum.steps_done + 1
        steps = min(schedule.recorded_steps, schedule.period, done - spectrum.start_steps)
        curvature = recorded.curvature(spectrum.indices, steps) / loss_scale**2
        progress = schedule.progress(done - steps)
        count = most_moved(len(before), progress, use_curvature=self.use_curvature)
        a = whole(spectrum.coefficients).to(decreases.dtype)
        return swap(a, before, decreases, curvature if self.use_curvature else None, count)

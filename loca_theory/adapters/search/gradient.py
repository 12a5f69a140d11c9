r"""Search along the location gradient: continuous locations that round to the indices.

A location is :math:`u = l / (p - 1, q - 1) + o` in :math:`[0, 1]`, with the layer's indices l and
its parameter ``offset`` o, which autograd gives the gradient of the location times (p − 1, q − 1).
"""

from __future__ import annotations

from typing import Any

import torch

from loca_theory.adapters.indices import continuous, extent, rounded, spread_out
from loca_theory.adapters.search.schedule import Phase
from loca_theory.adapters.search.sharding import shared_out, whole
from loca_theory.errors import InvalidArgumentError


class GradientSearch:
    """The phases of one spectrum, in which an optimiser steps its coefficients or its offset.

    The optimiser's own step of the offset is taken from zero, so that weight decay does nothing,
    and scaled to the learning rate of the locations.

    Args:
        spectrum: A :class:`~loca_theory.adapters.CosineSpectrum` with an offset.

    Source: section "Estimating location gradient" of the paper.
    """

    may_record = False

    def __init__(self, spectrum: Any) -> None:
        self.spectrum, self.phase = spectrum, "coefficients"
        self.start: torch.Tensor | None = None  # the offset, once the optimiser is to step it

    def begin(self) -> None:
        """Set what the next step learns."""
        self.phase: Phase | None = self.spectrum.schedule.phase(self.spectrum.steps_done)

    def inputs(self, a: torch.Tensor, offset: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Coefficients and locations for the operators; locations only in their phases."""
        learns = self.phase != "coefficients" and torch.is_grad_enabled()
        if not (learns and offset.requires_grad):
            return a, None
        l = (offset * extent(self.spectrum._size, a.device)).to(a.dtype)  # noqa: E741
        if self.phase == "locations":
            a = a.detach() + 0.0 * a if self.spectrum.is_shared else a.detach()
        return a, l

    @torch.no_grad()
    def before_step(self) -> None:
        """Keep only the gradient of the phase, and set an offset that learns to zero."""
        spectrum = self.spectrum
        if self.phase == "coefficients":
            spectrum.offset.grad = None
            return
        if self.phase == "locations":
            spectrum.coefficients.grad = None
        if self.start is None:
            self.start = spectrum.offset.detach().clone()
            spectrum.offset.zero_()

    def restore(self) -> None:
        """Take back what the optimiser did to the offset: it has skipped the step."""
        if self.start is not None:
            with torch.no_grad():
                self.spectrum.offset.copy_(self.start)
            self.start = None

    @torch.no_grad()
    def located(self, rate: float) -> torch.Tensor:
        """Where the optimiser's step, times a rate, puts the locations: (B, 2)."""
        spectrum = self.spectrum
        locations = continuous(spectrum.indices, spectrum._size, spectrum.offset.dtype)
        moved, self.start = spectrum.offset * rate + self.start, None
        return locations + whole(moved)

    @torch.no_grad()
    def move(self, locations: torch.Tensor) -> None:
        """Round locations, which are clamped to [0, 1] first, to the indices."""
        spectrum, u = self.spectrum, locations.clamp(0.0, 1.0)
        indices = rounded(u, spectrum._size)
        spectrum.has_moved = spectrum.has_moved | (indices != spectrum.indices).any()
        spectrum.set_indices(indices)
        offset = u - continuous(spectrum.indices, spectrum._size, u.dtype)
        spectrum.offset.copy_(shared_out(offset, spectrum.offset))

    def is_due(self) -> bool:
        """No components are pruned."""
        return False

    @torch.no_grad()
    def finish(self) -> None:
        """Separate components that share a location, which leaves ΔW as it is.

        Each such location keeps one of them with the sum of their coefficients; the others move to
        free locations with coefficient 0.
        """
        spectrum = self.spectrum
        indices, a = spread_out(spectrum.indices, whole(spectrum.coefficients), spectrum._size)
        spectrum.coefficients.copy_(shared_out(a, spectrum.coefficients))
        spectrum.set_indices(indices)


def move_all(moved: list[tuple[GradientSearch, float]]) -> None:
    """Move the locations of several layers, each by its rate.

    Raises:
        InvalidArgumentError: a location has become NaN.
    """
    located = [(search, search.located(rate)) for search, rate in moved]
    bad = [u.isnan().any() for _, u in located]
    if bad and bool(torch.stack([is_nan.to(bad[0].device) for is_nan in bad]).any()):
        name = next(s.spectrum.name for (s, _), nan in zip(located, bad, strict=True) if bool(nan))
        raise InvalidArgumentError(
            f"{name}: its locations have become NaN; is the loss NaN, or location_lr too large?"
        )
    for search, u in located:
        search.move(u)

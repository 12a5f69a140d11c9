r"""Search along the location gradient: continuous locations that round to the indices.

The search keeps :math:`u \in [0, 1]`, float32 of shape (B, 2), with :math:`l = \mathrm{round}(u\,
(p - 1, q - 1))` (halves to even). u is a leaf tensor outside the module and an input of the layer's
operator, so autograd delivers its gradient: that of the location times (p − 1, q − 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.optim.adamw import adamw

from loca_theory.adapters.indices import continuous, extent, rounded, spread_out
from loca_theory.adapters.search.processes import is_distributed
from loca_theory.adapters.search.schedule import Phase
from loca_theory.adapters.search.sharding import (
    assign,
    has_gradient,
    is_sharded,
    keeps_gradients_elsewhere,
    local,
    whole,
)
from loca_theory.adapters.spectrum import CosineSpectrum
from loca_theory.errors import InvalidArgumentError
from loca_theory.locations.gradient import LocationGradient

# A power of two that float16 holds exactly, far smaller than any gradient, so that it does not
# change the norm by which gradients are clipped.
_TRACER = 2.0**-20
_ADAMW: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0,
                          "amsgrad": False}  # fmt: skip


class GradientSearch:
    """Continuous locations of one spectrum, and their gradient.

    A GradScaler or gradient clipping scales the gradients of the optimiser's parameters only. The
    locations are not among them, so a tracer, a leaf tensor of the shape of the coefficients, gets
    the same gradient as the coefficients. The ratio of the two is the factor by which
    :meth:`before_step` scales the location gradient.

    In location phases the coefficients get a known tiny gradient instead of that of the loss,
    because distributed data parallelism fails on parameters without a gradient. If the location
    gradient overflows, the tiny one is not finite either, so that a GradScaler skips the step.
    :meth:`before_step` removes it before the optimiser sees it.

    Args:
        spectrum: Whose locations.
        rule: Finite-difference rule of the location gradient.

    Attributes:
        locations: u, (B, 2); None before the first location phase.
        moments: AdamW's ``step``, ``exp_avg`` and ``exp_avg_sq`` of the locations.
        phase: What is being learned.

    Source: section "Estimating location gradient" of the paper.
    """

    was_used = is_recording = may_record = False
    dropped = kept = None

    def __init__(self, spectrum: CosineSpectrum, rule: LocationGradient) -> None:
        self.spectrum, self.rule = spectrum, rule
        self.phase: Phase = "coefficients"
        self.locations: torch.Tensor | None = None
        self.moments: dict[str, torch.Tensor] = {}
        self._tracer: torch.Tensor | None = None

    def set_phase(self, phase: Phase) -> None:
        """Set what is learned from now on."""
        self.phase = phase
        if phase != "coefficients":
            self.align()
        self.forget()

    @torch.no_grad()
    def align(self) -> None:
        """Put the continuous locations where the indices are, unless they round to them already."""
        spectrum = self.spectrum
        size, indices = spectrum._size, spectrum.indices
        if indices.is_meta:
            return
        here = continuous(indices, size)
        if self.locations is None:
            self.locations = here.requires_grad_()
            self.moments = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(here, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(here, requires_grad=False),
            }
            # The coefficients may be sharded, and the tracer is whole.
            dtype = _tracer_dtype(spectrum.coefficients)
            self._tracer = torch.zeros_like(here[:, 0], dtype=dtype, requires_grad=True)
        else:
            moved = rounded(self.locations, size) != indices
            self.locations.copy_(torch.where(moved, here, self.locations))

    # --- what the spectrum calls ---

    def inputs(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Coefficients and locations for the operators; locations only in their phases."""
        trains = torch.is_grad_enabled() and self.spectrum.coefficients.requires_grad
        if self.phase == "coefficients" or not trains:
            return a, None
        if self.locations is None:
            self.align()
        if self.locations is None:
            return a, None
        held = self.spectrum.held_coefficients
        if held.grad is None and not keeps_gradients_elsewhere(self.spectrum):
            self.forget()  # in compiled code as well, see _Tracer
        l = (self.locations * extent(self.spectrum._size, a.device)).to(a.dtype)  # noqa: E741
        traced: Any = _Tracer.apply(l, a, self._tracer, self)
        l, a = traced  # noqa: E741
        return (a if self.phase == "both" else a.detach()), l

    @property
    def known_every(self) -> int:
        """The distance of the entries with the known gradient: one, or one in each shard."""
        held: Any = self.spectrum.held_coefficients
        count = self.spectrum.indices.shape[0]
        return -(-count // held.device_mesh.size()) if is_sharded(held) else count

    @property
    def learns_coefficients(self) -> bool:
        """Whether the optimiser is to step the coefficients."""
        return self.phase != "locations"

    def follow(self) -> None:
        """Move to the device of the coefficients."""
        a = self.spectrum.coefficients
        if self.locations is not None and not a.is_meta:
            self.locations = _moved(self.locations, a.device, self.locations.dtype)
            if self._tracer is not None:
                self._tracer = _moved(self._tracer, a.device, _tracer_dtype(a))
            for name in ("exp_avg", "exp_avg_sq"):
                self.moments[name] = self.moments[name].to(a.device)

    # --- steps ---

    @torch.no_grad()
    def before_step(self, scale: torch.Tensor | None = None) -> None:
        """Average and scale the gradient of the locations; remove the known tiny gradient.

        Args:
            scale: By what a fused optimiser is going to divide its gradients; None for 1.
        """
        leaves = [p for p in (self.locations, self._tracer) if p is not None]
        if self.phase == "coefficients" or not leaves:
            return
        if is_distributed():
            for leaf in leaves:
                leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
                torch.distributed.all_reduce(leaf.grad)
                leaf.grad /= torch.distributed.get_world_size()
        of_u, of_tracer = (leaf.grad for leaf in leaves)
        of_a = self.spectrum.coefficients.grad
        if of_u is None and of_a is not None and local(of_a).any():
            self.spectrum.location_training.warn_of_gradients_by_hand()
        if of_u is not None and of_tracer is not None and of_a is not None:
            largest, scaled = of_tracer.abs().argmax(0, keepdim=True), whole(of_a)
            before, after = of_tracer.gather(0, largest), scaled.gather(0, largest)
            factor = torch.where(before != 0, after / before, 1.0).to(of_u.dtype)
            # Entries that a skipped step has left non-finite are set to 0. If this step made them
            # non-finite, the factor is NaN, and so becomes the whole gradient.
            of_u.nan_to_num_(0.0, 0.0, 0.0).mul_(factor if scale is None else factor / scale)
            # An optimiser inside another one asks again, when only its own factor is due.
            of_tracer.copy_(scaled)
        if self.phase == "locations":
            self.spectrum.coefficients.grad = None

    def drop_leftovers(self) -> None:
        """Drop the gradient of a skipped step if zero_grad() has been called since."""
        is_there = has_gradient(self.spectrum)
        if isinstance(is_there, torch.Tensor):
            for leaf in (self.locations, self._tracer):
                if leaf is not None and leaf.grad is not None:
                    leaf.grad = leaf.grad.where(is_there, 0.0)
        elif not is_there:
            self.forget()

    def forget(self) -> None:
        """Drop the gradient of the locations."""
        for tensor in (self.locations, self._tracer):
            if tensor is not None:
                tensor.grad = None

    @torch.no_grad()
    def round(self) -> None:
        """Bring the indices up to date with the locations, which are clamped to [0, 1] first."""
        if self.locations is not None:
            self.locations.clamp_(0.0, 1.0)
            self.spectrum.set_indices(rounded(self.locations, self.spectrum._size))
        self.forget()

    @torch.no_grad()
    def finish(self) -> None:
        """Make the indices final.

        Each location that components share keeps one of them with the sum of their coefficients;
        the others move to free locations with coefficient 0, which leaves ΔW as it is.
        """
        spectrum = self.spectrum
        indices, a = spread_out(spectrum.indices, whole(spectrum.coefficients), spectrum._size)
        assign(spectrum.coefficients, a)
        spectrum.set_indices(indices)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers to continue from."""
        u = self.locations
        return {} if u is None else {"locations": u.detach(), **self.moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        self.forget()
        if "locations" in state:
            self.align()
            with torch.no_grad():
                for name, tensor in {"locations": self.locations, **self.moments}.items():
                    if tensor is not None:
                        tensor.copy_(state[name])


def _tracer_dtype(coefficients: torch.Tensor) -> torch.dtype:
    """Float32 at least, in which the gradient of a scaled loss does not overflow.

    PEFT makes an adapter in the dtype of the base, and widens it after the search has begun.
    """
    return torch.promote_types(coefficients.dtype, torch.float32)


def _moved(leaf: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """The leaf, or a copy with its gradient on another device or of another dtype."""
    if (leaf.device, leaf.dtype) == (device, dtype):
        return leaf
    moved = leaf.detach().to(device, dtype).requires_grad_()
    moved.grad = None if leaf.grad is None else leaf.grad.to(device, dtype)
    return moved


@torch.no_grad()
def step_locations(
    searches: Sequence[GradientSearch], lr: float, *, maximize: bool = False
) -> None:
    """Step the locations of several layers by AdamW without weight decay, and round them.

    Args:
        searches: In a location phase.
        lr: The learning rate.
        maximize: Whether to go up the gradient, as the optimiser of the coefficients does.

    Raises:
        InvalidArgumentError: a location has become NaN.
    """
    moved = [(s, u) for s in searches if (u := s.locations) is not None and u.grad is not None]
    if not moved:
        return
    names = ("exp_avg", "exp_avg_sq", "step")
    first, second, steps = ([search.moments[name] for search, _ in moved] for name in names)
    leaves: list[torch.Tensor] = [u for _, u in moved]
    grads: list[Any] = [u.grad for u in leaves]
    adamw(
        *(leaves, grads, first, second, [], steps),
        **_ADAMW,
        lr=lr,
        maximize=maximize,
    )
    bad = [u.isnan().any() for u in leaves]
    if bool(torch.stack([one.to(bad[0].device) for one in bad]).any()):
        name = next(s.spectrum.name for (s, _), one in zip(moved, bad, strict=True) if bool(one))
        msg = f"{name}: its locations have become NaN; is the loss NaN, or location_lr too large?"
        raise InvalidArgumentError(msg)
    for search, _ in moved:
        search.round()


class _Tracer(torch.autograd.Function):
    """Identity function of locations and coefficients that also gives the tracer a gradient."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        l, a, _, ctx.search = inputs  # noqa: E741
        ctx.is_known, ctx.every = ctx.search.phase == "locations", ctx.search.known_every
        return l.clone(), a.clone()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, g: torch.Tensor, of_a: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        if not torch.compiler.is_compiling():
            ctx.search.drop_leftovers()
        if not ctx.is_known:
            return g, of_a, of_a.clone(), None
        known = torch.zeros_like(of_a)
        known[:: ctx.every] = _TRACER
        return g, known + 0.0 * g.sum(), known, None

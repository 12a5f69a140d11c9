"""The learnable sparse spectrum S(a, l) of an increment."""

from __future__ import annotations

import warnings
from typing import Any, cast, get_args

import torch

from loca_theory.adapters.costs import Implementation, check_implementation, fastest
from loca_theory.adapters.gradient_statistics import GradientStatistics, record
from loca_theory.adapters.indices import extent
from loca_theory.adapters.location_search import InitialLocations, LocationSearch
from loca_theory.adapters.operators import Materialised, increment, increment_linear
from loca_theory.adapters.parameters import SpectrumParameters, requires_grad
from loca_theory.adapters.processes import is_distributed
from loca_theory.errors import InvalidArgumentError
from loca_theory.locations.gradient import LocationGradient
from loca_theory.locations.prune_and_regrow import (
    components_to_drop,
    largest,
    most_moved,
    reselect,
    swap,
)


class CosineSpectrum(SpectrumParameters):
    r"""B components of a p×q increment: :math:`\Delta W = \alpha\,C^\top \mathcal S(a, l)\,D`.

    - ``coefficients`` a, a parameter of shape (B,), zeros at the start (or normal with variance
      1/max(p, q), so that :math:`\lVert\Delta W\rVert_F^2 \approx \alpha^2 B / \max(p, q)`).
    - ``indices`` l̂, an integer buffer of shape (B, 2): the locations in use, distinct and
      uniformly random at the start. Casts of the model do not change integers.
    - ``locations`` u ∈ [0, 1], a float32 parameter of shape (B, 2), or None if locations are not
      learned: the continuous locations, with
      :math:`\hat l = \mathrm{round}(u\,(p - 1, q - 1))` (halves to even). The parameter stays
      float32 when the model is cast, and requires a gradient only in location phases. Its gradient
      is that of the location times (p − 1, q − 1). Values outside [0, 1] are clamped.
    - ``shape``, an integer buffer (p, q): a checkpoint of another shape is refused.

    The coefficients of components that share a location are added. When the locations are frozen
    (:meth:`freeze_locations`), one component at each shared location gets the sum, and the others
    move to free locations with coefficient 0. This does not change ΔW.

    Args:
        shape: (p, q) of the increment: outputs, inputs.
        n_components: B, from 1 to p·q.
        scaling: α, positive and finite. The paper uses 1.
        zero_init: Start at ΔW = 0.
        learn_locations: Whether locations will be learned.
        location_search: How locations are searched for. Either along a gradient, by a difference of
            :func:`~loca_theory.locations.gradient.location_gradient`: ``central`` (the
            paper), ``forward``, ``backward`` or ``eight-direction``. Or across the spectrum, by
            pruning and regrowing (:mod:`loca_theory.locations.prune_and_regrow`): ``reselect``,
            ``swap`` or ``swap-raw``; then there is no parameter ``locations``.
        init_locations: Initial locations: ``random``, or ``gradient`` for those with the largest
            predicted decrease of the loss in the first batches. ``gradient`` and prune-and-regrow
            searches need a :class:`~loca_theory.adapters.LocationTraining`.
        implementation: How ΔW is applied; ``auto`` chooses the one expected to be fastest.
        seed: Seed of the random locations and coefficients: an integer, or a tuple of integers.
        name: Name of the layer in error messages.

    Raises:
        InvalidArgumentError: a value is outside these ranges.

    Source: equation (original_dct) and section "Estimating location gradient" of the paper.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        n_components: int,
        *,
        scaling: float = 1.0,
        zero_init: bool = True,
        learn_locations: bool = True,
        location_search: LocationSearch = "central",
        init_locations: InitialLocations = "random",
        implementation: Implementation = "auto",
        seed: int | tuple[int, ...] = 777,
        name: str = "LoCA layer",
    ) -> None:
        super().__init__(
            shape,
            n_components,
            scaling=scaling,
            zero_init=zero_init,
            learn_locations=learn_locations,
            location_search=location_search,
            init_locations=init_locations,
            seed=seed,
            name=name,
        )
        try:
            check_implementation(implementation)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{name}: {error}") from None  # noqa: EM102
        self.implementation: Implementation = implementation
        self._rule: LocationGradient = "central"
        if location_search in get_args(LocationGradient):
            self._rule = cast("LocationGradient", location_search)
        self._idle_until = None
        self._statistics: GradientStatistics | None = None
        self._dropped: torch.Tensor | None = None

    # --- prune-and-regrow searches ---

    def start_recording(self, progress: float, turn: int) -> None:
        """Record the gradient of the whole spectrum in the next step, for the next move.

        For ``reselect``, :meth:`forward` drops some components until the move: in training mode, as
        dropout does, and whenever gradients are computed. :meth:`increment` still returns the full
        ΔW. If the spectrum is already recording, it adds the next step.

        Args:
            progress: Fraction already elapsed of the steps in which components may move, in [0, 1].
            turn: Number of the move.
        """
        if self._statistics is not None:
            self._statistics.steps += 1
            return
        a = self.coefficients.detach()
        dtype = torch.promote_types(a.dtype, _LOWEST)
        self._statistics = GradientStatistics(self._size, self.scaling, dtype, a.device)
        self._progress = progress
        if self.location_search == "reselect" and not self.needs_initialisation:
            self._dropped = components_to_drop(a, progress, turn).sort().values

    def forget(self) -> None:
        """Stop recording, and discard the statistics."""
        self._statistics = self._dropped = None

    def freeze_locations(self) -> None:
        """Make the locations final; components that share a location are separated first."""
        if not self.needs_initialisation:
            self.forget()
        super().freeze_locations()

    @property
    def is_recording(self) -> bool:
        """Whether gradients are being recorded for a move."""
        return self._statistics is not None

    @torch.no_grad()
    def prune_and_regrow(self) -> torch.Tensor:
        """Move components by the recorded gradients, and stop recording.

        The coefficients of components that move become zero. Random initial coefficients are not
        changed by the move to the initial locations.

        Returns:
            Mask of the components that moved, (B,).
        """
        statistics, dropped = self._statistics, self._dropped
        self.forget()
        stay = torch.zeros_like(self.coefficients, dtype=torch.bool)
        is_start, self.needs_initialisation = self.needs_initialisation, False
        if statistics is None:
            return stay
        if is_distributed():
            statistics.gather()
        if not statistics:
            if is_start:
                msg = f"{self.name}: no gradient was recorded, so its locations stay random"
                warnings.warn(msg, stacklevel=2)
            return stay
        is_raw = self.location_search == "swap-raw"
        predicted_decrease, before = (
            statistics.predicted_decreases(use_curvature=not is_raw),
            self._flat_indices(),
        )
        if is_start:
            after = largest(predicted_decrease, before.shape[0])
        elif dropped is not None:
            after = reselect(before, dropped, predicted_decrease)
        else:
            curvature = None if is_raw else statistics.curvature(self.indices)
            count = most_moved(before.shape[0], self._progress, use_curvature=not is_raw)
            after = swap(
                self.coefficients.to(predicted_decrease.dtype),
                before,
                predicted_decrease,
                curvature,
                count,
            )
        if is_distributed():
            torch.distributed.broadcast(after, 0)  # processes may break ties differently
        q = self._size[1]
        self.set_indices(torch.stack([after // q, after % q], dim=1))
        moved = after != before
        if self.zero_init or not is_start:
            self.coefficients.masked_fill_(moved, 0.0)
        if self.coefficients.grad is not None:
            self.coefficients.grad.masked_fill_(moved, 0.0)  # it belongs to the old location
        return moved

    def _apply(self, fn: Any, recurse: bool = True) -> SpectrumParameters:
        super()._apply(fn, recurse)
        # Recording of the first step may start before the model is moved to its device.
        device = self.coefficients.device
        if self._statistics is not None:
            self._statistics.to(device)
        if self._dropped is not None:
            self._dropped = self._dropped.to(device)
        return self

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        self.forget()

    def _flat_indices(self) -> torch.Tensor:
        return self.indices[:, 0] * self._size[1] + self.indices[:, 1]

    # --- ΔW ---

    def increment(self) -> torch.Tensor:
        """ΔW, (p, q), in the dtype of the coefficients (computed in float32 at least)."""
        a, l = self._arguments(self.coefficients.dtype)  # noqa: E741
        implementation: Materialised = "fft"
        if self.implementation in ("dense", "sparse", "fft"):
            implementation = self.implementation
        delta = increment(
            a,
            l,
            self.indices,
            self.pattern(),
            shape=self._size,
            scaling=self.scaling,
            rule=self._rule,
            implementation=implementation,
        )
        return delta.to(self.coefficients.dtype)

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        r""":math:`x\,\Delta W^\top`, or :math:`x\,(W + \Delta W)^\top + b` for a frozen W.

        Args:
            x: (..., q), of a floating dtype. float16 and bfloat16 are computed in float32 and cast
                back.
            weight: W (p, q) in the dtype of x, float32 or float64, or None.
            bias: b (p,), only with W.

        Returns:
            (..., p) in the dtype of x.

        Raises:
            InvalidArgumentError: x is not q wide, or is on another device than the layer.
        """
        if x.ndim == 0 or x.shape[-1] != self._size[1]:
            have = f"not of shape {tuple(x.shape)}"
            msg = f"{self.name}: its input must be {self._size[1]} wide, {have}"
            raise InvalidArgumentError(msg)
        self.check_device(x)
        a, l = self._arguments(x.dtype)  # noqa: E741
        if self._dropped is not None and (self.training or torch.is_grad_enabled()):
            a = a.index_fill(0, self._dropped, 0.0)
        implementation = self.implementation
        if implementation == "auto":
            implementation = fastest(
                self._size,
                a.shape[0],
                x.numel() // max(x.shape[-1], 1),
                trains=torch.is_grad_enabled()
                and (x.requires_grad or a.requires_grad or l is not None),
                foldable=weight is not None,
                device=x.device,
            )
        y = increment_linear(
            x.to(a.dtype),
            weight,
            bias,
            a,
            l,
            self.indices,
            self.pattern(),
            rows=self._size[0],
            scaling=self.scaling,
            rule=self._rule,
            implementation=implementation,
        )
        if self._statistics is not None and y.requires_grad:
            y = record(self._statistics, x, y)
        return y.to(x.dtype)

    def check_device(self, x: torch.Tensor) -> None:
        """Check that the input is on the device of the coefficients.

        Layers call this first, because the product with their frozen weight would fail without the
        name of the layer.

        Raises:
            InvalidArgumentError: the input is on another device.
        """
        if x.device != self.coefficients.device:
            msg = f"{self.name}: its input is on {x.device}, and its coefficients are on "
            msg += f"{self.coefficients.device}; move one of them with .to(device)"
            raise InvalidArgumentError(msg)

    def _arguments(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return a and l in float32 at least; l in units of locations, or None if not learned."""
        if self._moved():
            self.refresh()
        self._warn_if_idle()
        working = torch.promote_types(torch.promote_types(dtype, self.coefficients.dtype), _LOWEST)
        a = self.coefficients.to(working)
        if requires_grad(self.locations) and self.locations is not None:
            l = (self.locations * extent(self._size, a.device)).to(working)  # noqa: E741
        else:
            l = None  # noqa: E741
        if not self._keeps_all_in_graph or l is None:
            return a, l
        if self._phase == "coefficients":
            # The reducer waits for all gradients, so unused parameters get zeros.
            return a + 0.0 * l.sum(), None
        if self._phase == "locations":
            return a.detach(), l + 0.0 * a.sum()
        return a, l

    def _warn_if_idle(self) -> None:
        """Warn once if, after some steps of the coefficients, nothing trains the locations."""
        if self.training_schedule is not None or self._idle_until == -1:
            return
        if not (self.learns_locations or self.needs_initialisation):
            return
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        if self._phase != "coefficients":
            self._idle_until = -1
        elif self._idle_until is None:
            self._idle_until = self.coefficients._version + _IDLE_CHANGES
        elif self.coefficients._version > self._idle_until:
            self._idle_until = -1
            warnings.warn(
                f"{self.name}: its locations are not being learned; make a LocationTraining(model, "
                "AlternatingSchedule()), or set learn_locations=False",
                stacklevel=4,
            )

    def extra_repr(self) -> str:
        """The summary that ``print`` shows."""
        learned = ", learns locations" if self.learns_locations else ""
        b = self.coefficients.shape[0]
        return f"{b} components of {self._size[0]}×{self._size[1]}, scaling={self.scaling}{learned}"


_LOWEST = torch.float32
# This many in-place changes of the coefficients correspond to several steps of an optimiser.
_IDLE_CHANGES = 30

"""The learnable sparse spectrum S(a, l) of an increment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from loca_theory.adapters.checks import check_choice, check_scaling, check_whole
from loca_theory.adapters.costs import (
    IMPLEMENTATIONS,
    Implementation,
    fastest,
    product_dtype,
)
from loca_theory.adapters.increment import increment
from loca_theory.adapters.linear_operator import increment_linear
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.adapters.search.schedule import AlternatingSchedule
from loca_theory.adapters.search.settings import InitialLocations, LocationSearch
from loca_theory.adapters.search.state import LOWEST, SearchState
from loca_theory.errors import InvalidArgumentError


class CosineSpectrum(SearchState):
    r"""B components of a p×q increment: :math:`\Delta W = \alpha\,C^\top \mathcal S(a, l)\,D`.

    Its state is

    - ``coefficients`` a, a parameter of shape (B,), zeros at the start (or normal with variance
      1/max(p, q), so that :math:`\lVert\Delta W\rVert_F^2 \approx \alpha^2 B / \max(p, q)`).
    - ``indices`` l, an integer buffer of shape (B, 2). Distinct and uniformly random at the start.
      Integers survive every cast of the model.
    - ``shape``, an integer buffer (p, q). A checkpoint of another shape is refused.
    - until a search is over, ``steps``, an integer buffer: the number of steps it has followed;
      and, once it is followed, ``offset`` (B, 2), a parameter of a search along a gradient: the
      distance of the continuous location from its index, on the scale of [0, 1].
      The other searches have ``dropped`` and ``recorded`` instead, while they record gradients.

    The indices stay where they are unless :func:`~loca_theory.adapters.follow` moves them.
    Components that share a location add up.

    Args:
        shape: (p, q) of the increment: outputs, inputs.
        n_components: B, from 1 to p·q.
        scaling: α, positive and finite. The paper uses 1.
        zero_init: Start at ΔW = 0. Otherwise torch's global generator draws the coefficients.
        implementation: How ΔW is applied; ``auto`` takes what is expected to be fastest.
        seed: Seed of the random indices: an integer of at least 0, or a tuple of them.
        name: Name of the layer in error messages.
        schedule: Which steps learn coefficients, and which learn locations; None for fixed
            locations. The prune-and-regrow searches always learn coefficients, and move components
            at the end of each period (``coefficient_steps + location_steps``).
        location_search: How locations are searched for. Along a gradient, by a difference of
            :func:`~loca_theory.locations.gradient.location_gradient`: ``central`` (the paper),
            ``forward``, ``backward`` or ``eight-direction``. Or across the spectrum, by
            :mod:`loca_theory.locations.prune_and_regrow`: ``reselect``, ``swap`` or ``swap-raw``.
        init_locations: ``random``, or ``gradient`` for the locations where the gradients of the
            first batches predict the largest decrease of the loss. Coefficients are not learned
            until these are found.
        location_lr: Learning rate of the locations on their scale of [0, 1]. The paper's 1e-4 moves
            a location of a 768-wide layer by at most 0.08 of an index per step of Adam.

    Attributes:
        steps_done: The number of steps that the search has followed.

    Raises:
        InvalidArgumentError: a value is outside these ranges, or settings exclude each other.

    Source: the paper's inverse DCT, ΔW = α·Cᵀ S D.
    """

    _pattern: SparsityPattern
    _arranged: torch.Tensor
    _written: int | None

    def __init__(
        self,
        shape: tuple[int, int],
        n_components: int,
        *,
        scaling: float = 1.0,
        zero_init: bool = True,
        implementation: Implementation = "auto",
        seed: int | tuple[int, ...] = 777,
        name: str = "LoCA layer",
        schedule: AlternatingSchedule | None = None,
        location_search: LocationSearch = "central",
        init_locations: InitialLocations = "random",
        location_lr: float = 1e-4,
    ) -> None:
        check_whole(f"{name}: the number of components", n_components, 1)
        p, q = shape
        if n_components > p * q:
            raise InvalidArgumentError(
                f"{name}: {n_components} components do not fit into {p}×{q} = {p * q} locations; "
                "reduce n_components (in PEFT n_frequency, or n_frequency_pattern for it)"
            )
        check_scaling(f"{name}: the scaling", scaling)
        for number in seed if isinstance(seed, tuple) else (seed,):
            check_whole(f"{name}: the seed", number, 0)
        check_choice(f"{name}: implementation", implementation, IMPLEMENTATIONS)
        a = torch.zeros(n_components)
        if not zero_init:
            a.normal_(std=max(shape) ** -0.5)
        drawn = np.random.default_rng(seed).choice(p * q, n_components, replace=False)
        flat = torch.from_numpy(drawn).to(a.device)
        indices = torch.stack([flat // q, flat % q], dim=1)
        super().__init__(a, indices, shape, schedule, location_search, init_locations, location_lr)
        self.name, self.scaling = name, float(scaling)
        self.implementation: Implementation = implementation
        self._arrange()

    def increment(self, *, in_use: bool = False) -> torch.Tensor:
        """ΔW, (p, q), in the dtype of the coefficients (computed in float32 at least).

        Args:
            in_use: Whether to leave out the components that a search tries to do without.
        """
        a, locations = self._inputs(self.coefficients.dtype, in_use=in_use)
        delta = increment(a, locations, self.indices, self._size, self.scaling, self.rule)
        return delta.to(self.coefficients.dtype)

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        r""":math:`x\,\Delta W^\top`, or :math:`x\,(W + \Delta W)^\top + b` for a frozen W.

        Args:
            x: (..., q), floating.
            weight: W (p, q) in the dtype of x, float32 or float64, or None.
            bias: b (p,), only with W.

        Returns:
            (..., p) in the dtype of x, or in that of autocast. In bfloat16, ΔW is formed in
            float32, rounded once and applied by a product of its own, since W + ΔW would lose a
            small ΔW; the gradients of a and l come from a product in bfloat16, too. A CPU without
            units for it computes all this in float32, and so does every device for float16.

        Raises:
            InvalidArgumentError: x is not q wide.
        """
        if x.ndim == 0 or x.shape[-1] != self._size[1]:
            raise InvalidArgumentError(
                f"{self.name}: its input must be {self._size[1]} wide, not of shape "
                f"{tuple(x.shape)}"
            )
        a, locations = self._inputs(x.dtype)
        dtype = product_dtype(x, a.dtype) if weight is None else a.dtype
        of_output = dtype if dtype.itemsize < x.dtype.itemsize else x.dtype  # less under autocast
        if self._needs_plain_operations():
            delta = increment(a, None, self.indices, self._size, self.scaling, self.rule)
            changed = (delta if weight is None else weight + delta).to(dtype)
            return nn.functional.linear(x.to(dtype), changed, bias).to(of_output)
        implementation = self.implementation
        if implementation == "auto":
            learns = x.requires_grad or a.requires_grad or locations is not None
            implementation = fastest(
                self._size,
                a.shape[0],
                x.numel() // x.shape[-1],
                trains=learns and torch.is_grad_enabled(),
                foldable=weight is not None,
                is_half=dtype != a.dtype,
                device=x.device,
            )
        y = increment_linear(
            x.to(dtype),
            weight,
            bias,
            a,
            locations,
            self.indices,
            self.pattern(),
            rows=self._size[0],
            scaling=self.scaling,
            rule=self.rule,
            implementation=implementation,
        )
        if self.records(y):
            y = self.search.record(x, y)
        return y.to(of_output)

    def _inputs(
        self, dtype: torch.dtype, *, in_use: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Coefficients in float32 at least, and the locations if a search differentiates them."""
        working = torch.promote_types(torch.promote_types(dtype, self.coefficients.dtype), LOWEST)
        a, locations = self.coefficients.to(working), None
        trains = self.coefficients.requires_grad and (self.training or torch.is_grad_enabled())
        if in_use and trains and self.search is not None and self.dropped is not None:
            a = a.masked_fill(self.dropped, 0.0)
        if self._needs_plain_operations():
            return a, None
        if self.search is None:
            self._watch_gradients()
        else:
            a, locations = self.search.inputs(a, self.offset)
        # DistributedDataParallel asks every parameter for a gradient.
        (resting,) = self._released if self.offset is None else (self.offset,)
        if self.is_shared and locations is None and resting is not None:
            a = a + 0.0 * resting.sum()
        return a, locations

    def _needs_plain_operations(self) -> bool:
        """Whether torch.func or the meta device is at work, which the operators do not support."""
        return self.coefficients.is_meta or torch._C._are_functorch_transforms_active()

    @torch.no_grad()
    def set_indices(self, indices: torch.Tensor) -> None:
        """Move the components to other locations: integers (B, 2), inside the spectrum."""
        self.indices.copy_(indices)
        self._arrange()

    def pattern(self) -> SparsityPattern:
        """The indices arranged for sparse products, anew if they were replaced or written."""
        is_theirs = self._arranged is self.indices
        if torch.compiler.is_compiling():
            return self._pattern if is_theirs else SparsityPattern.of(self.indices, self._size)
        if not is_theirs or self._written != _version(self.indices):
            self._arrange()
        return self._pattern

    @torch.inference_mode(mode=False)
    def _arrange(self) -> None:
        self._pattern = SparsityPattern.of(self.indices, self._size)
        self._arranged, self._written = self.indices, _version(self.indices)

    def _apply(self, fn: Any, recurse: bool = True) -> CosineSpectrum:
        super()._apply(fn, recurse)
        self._arrange()
        if self.offset is not None:  # a location has too many digits for half precision
            self.offset.data = self.offset.to(torch.promote_types(self.offset.dtype, LOWEST)).data
        return self

    def extra_repr(self) -> str:
        """What print shows."""
        b = self.coefficients.shape[0]
        return f"{b} components of {self._size[0]}×{self._size[1]}, scaling={self.scaling}"


def _version(tensor: torch.Tensor) -> int | None:
    """A number that grows as the tensor is written in place; None if torch does not count."""
    return None if tensor.is_inference() else tensor._version

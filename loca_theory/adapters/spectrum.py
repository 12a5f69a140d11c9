"""The learnable sparse spectrum S(a, l) of an increment."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from loca_theory.adapters.checks import check_choice, check_scaling, check_whole
from loca_theory.adapters.costs import IMPLEMENTATIONS, Implementation, fastest
from loca_theory.adapters.increment_operator import Materialised, increment
from loca_theory.adapters.indices import mistake, random_indices
from loca_theory.adapters.linear_operator import increment_linear
from loca_theory.adapters.pattern import SparsityPattern
from loca_theory.errors import InvalidArgumentError
from loca_theory.locations.gradient import LocationGradient
from loca_theory.transforms import idct2

_PATTERN = SparsityPattern._fields
_LOWEST = torch.float32
# Keys of adapters that earlier versions of this package saved.
OLD_KEYS = ("places", "locations", "searching")


class CosineSpectrum(nn.Module):
    r"""B components of a p×q increment: :math:`\Delta W = \alpha\,C^\top \mathcal S(a, l)\,D`.

    Its state is the same before, during and after a search for locations:

    - ``coefficients`` a, a parameter of shape (B,), zeros at the start (or normal with variance
      1/max(p, q), so that :math:`\lVert\Delta W\rVert_F^2 \approx \alpha^2 B / \max(p, q)`).
    - ``indices`` l, an integer buffer of shape (B, 2). Distinct and uniformly random at the start.
      Integers survive every cast of the model.
    - ``shape``, an integer buffer (p, q). A checkpoint of another shape is refused.

    The indices stay where they are unless a :class:`~loca_theory.adapters.LocationTraining` moves
    them. Components that share a location add up.

    Args:
        shape: (p, q) of the increment: outputs, inputs.
        n_components: B, from 1 to p·q.
        scaling: α, positive and finite. The paper uses 1.
        zero_init: Start at ΔW = 0. Otherwise torch's global generator draws the coefficients.
        implementation: How ΔW is applied; ``auto`` takes what is expected to be fastest.
        seed: Seed of the random indices: an integer of at least 0, or a tuple of them.
        name: Name of the layer in error messages.

    Raises:
        InvalidArgumentError: a value is outside these ranges.

    Source: equation (original_dct) of the paper.
    """

    indices: torch.Tensor
    shape: torch.Tensor
    _order: torch.Tensor
    _is_replica = False  # nn.DataParallel sets it
    _versions: tuple[int, int] | None = None

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
    ) -> None:
        super().__init__()
        _check(shape, n_components, scaling, seed, name)
        check_choice("implementation", implementation, IMPLEMENTATIONS, layer=name)
        self.name, self.scaling, self.zero_init = name, float(scaling), zero_init
        self.implementation: Implementation = implementation
        self.search: Any = None  # of loca_theory.adapters.search, while one is under way
        self.location_training: Any = None  # the LocationTraining of the latest search
        self._size = shape
        self._sharded: tuple[torch.Tensor] | None = None
        a = torch.zeros(n_components)
        if not zero_init:
            a.normal_(std=max(shape) ** -0.5)
        self.coefficients = nn.Parameter(a)
        indices = random_indices(shape, n_components, np.random.default_rng(seed)).to(a.device)
        self.register_buffer("indices", indices)
        self.register_buffer("shape", torch.tensor(shape))
        for field, part in zip(_PATTERN, SparsityPattern.of(indices, shape), strict=True):
            self.register_buffer(f"_{field}", part, persistent=False)
        self._note_arranged()

    # --- ΔW ---

    def increment(self) -> torch.Tensor:
        """ΔW, (p, q), in the dtype of the coefficients (computed in float32 at least)."""
        return self._increment(*self._inputs(self.coefficients.dtype))

    def increment_in_use(self) -> torch.Tensor:
        """:meth:`increment` without the components that a search tries to do without."""
        a, l = self._inputs(self.coefficients.dtype)  # noqa: E741
        return self._increment(self._without_dropped(a), l)

    def _increment(self, a: torch.Tensor, l: torch.Tensor | None) -> torch.Tensor:  # noqa: E741
        if self._needs_plain_operations():
            return self._plain_increment(a).to(self.coefficients.dtype)
        form: Materialised = "fft"
        if self.implementation in ("dense", "sparse", "fft"):
            form = self.implementation
        delta = increment(
            a,
            l,
            self.indices,
            self.pattern(),
            shape=self._size,
            scaling=self.scaling,
            rule=self._rule,
            implementation=form,
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
            x: (..., q), floating. float16 and bfloat16 are computed in float32 and cast back.
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
        a, l = self._inputs(x.dtype)  # noqa: E741
        a = self._without_dropped(a)
        if self._needs_plain_operations():
            delta = self._plain_increment(a)
            changed = delta if weight is None else weight + delta
            return nn.functional.linear(x.to(changed.dtype), changed, bias).to(x.dtype)
        implementation = self.implementation
        if implementation == "auto":
            learns = x.requires_grad or a.requires_grad or l is not None
            implementation = fastest(
                self._size,
                a.shape[0],
                x.numel() // max(x.shape[-1], 1),
                trains=torch.is_grad_enabled() and learns,
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
        if self.records(y):
            y = self.search.record(x, y)
        return y.to(x.dtype)

    def records(self, y: torch.Tensor) -> bool:
        """Whether a search records the gradient of the output y in this step.

        Compiled code is the same in all steps of a search, and asks the search when it runs.
        """
        if self.search is None or not y.requires_grad:
            return False
        is_compiling = torch.compiler.is_compiling()
        return self.search.may_record if is_compiling else self.search.is_recording

    def _without_dropped(self, a: torch.Tensor) -> torch.Tensor:
        trains = self.coefficients.requires_grad and (self.training or torch.is_grad_enabled())
        if self.search is None or not trains:
            return a
        if torch.compiler.is_compiling():
            return a if self.search.kept is None else a * self.search.kept
        dropped = self.search.dropped
        return a if dropped is None else a.index_fill(0, dropped, 0.0)

    def check_device(self, x: torch.Tensor) -> None:
        """Refuse an input on another device. A linear layer checks this before it uses its weight.

        Raises:
            InvalidArgumentError: the input is on another device than the coefficients.
        """
        if x.device != self.coefficients.device:
            msg = f"{self.name}: its input is on {x.device}, and its coefficients are on "
            msg += f"{self.coefficients.device}; move one of them with .to(device)"
            raise InvalidArgumentError(msg)

    @property
    def _rule(self) -> LocationGradient:
        return "central" if self.search is None else self.search.rule

    def _inputs(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Coefficients in float32 at least, and the locations if a search differentiates them."""
        is_traced = torch.compiler.is_compiling()  # is_inference() cannot be traced
        if torch.is_grad_enabled() and not is_traced and self.coefficients.is_inference():
            msg = f"{self.name}: it was made inside torch.inference_mode(), so it has no gradients;"
            msg += " make it outside, or call it under torch.no_grad()"
            raise InvalidArgumentError(msg)
        working = torch.promote_types(torch.promote_types(dtype, self.coefficients.dtype), _LOWEST)
        a = self.coefficients.to(working)
        if self.search is None or self._needs_plain_operations():
            return a, None
        if self._is_replica and (self.training or torch.is_grad_enabled()):
            msg = f"{self.name}: a search for locations cannot follow nn.DataParallel; start the "
            msg += "script by torchrun (DistributedDataParallel), make one GPU visible, or set "
            msg += "alternating_steps=0"
            raise InvalidArgumentError(msg)
        if not is_traced:
            self.search.was_used = True
        return self.search.inputs(a)

    def _needs_plain_operations(self) -> bool:
        """Whether torch.func or the meta device is at work, which the operators do not support."""
        return self.coefficients.is_meta or torch._C._are_functorch_transforms_active()

    def _plain_increment(self, a: torch.Tensor) -> torch.Tensor:
        """ΔW by operations that torch can transform."""
        p, q = self._size
        flat = self.indices[:, 0] * q + self.indices[:, 1]
        spectrum = a.new_zeros(p * q).index_add(0, flat, a).view(p, q)
        return self.scaling * idct2(spectrum)

    # --- indices ---

    @torch.no_grad()
    def set_indices(self, indices: torch.Tensor) -> None:
        """Move the components to other locations: integers (B, 2), inside the spectrum."""
        self.indices.copy_(indices)
        self._arrange()

    @property
    def held_coefficients(self) -> torch.Tensor:
        """The parameter that optimisers hold, which has the gradient of all backward passes.

        It is ``coefficients``, except within the passes of a layer that FSDP2 has sharded, when
        ``coefficients`` is a tensor for the time being.
        """
        return self.coefficients if self._sharded is None else self._sharded[0]

    def pattern(self) -> SparsityPattern:
        """The indices arranged for sparse products."""
        if self._arranged is not self.indices:  # torch.func.functional_call has put others in
            return SparsityPattern.of(self.indices, self._size)
        if not torch.compiler.is_compiling():
            self._follow_indices()
        return SparsityPattern(*(getattr(self, f"_{field}") for field in _PATTERN))

    @torch.no_grad()
    def _arrange(self) -> None:
        for field, part in zip(_PATTERN, SparsityPattern.of(self.indices, self._size), strict=True):
            name = f"_{field}"
            if part.device == (old := getattr(self, name)).device and not old.is_inference():
                old.copy_(part)  # in place: compiled code holds it
            else:
                setattr(self, name, part)
        self._note_arranged()

    def _note_arranged(self) -> None:
        self._arranged, self._versions = self.indices, self._current_versions()

    def _current_versions(self) -> tuple[int, int] | None:
        """Numbers that grow as the indices and their pattern are written; None if unknown."""
        if self.indices.is_inference() or self._order.is_inference():
            return None
        return self.indices._version, self._order._version

    def _follow_indices(self) -> None:
        """Arrange indices that were written in place, by tensors of a state dict for example."""
        before, now = self._versions, self._current_versions()
        if now == before:
            return
        self._versions = now
        # An average of models and distributed data parallelism write all buffers, also the pattern.
        if before is not None and now is not None and now[1] == before[1]:
            self._arrange()

    def _apply(self, fn: Any, recurse: bool = True) -> CosineSpectrum:
        self._follow_indices()
        super()._apply(fn, recurse)
        self._note_arranged()
        if self._sharded is not None:
            self._sharded = (self.coefficients,)
        if self.search is not None:
            self.search.follow()
        return self

    def __getstate__(self) -> dict[str, Any]:
        self._follow_indices()  # a copy has other versions
        return self.__dict__

    # --- checkpoints ---

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "coefficients" and hasattr(value, "full_tensor"):
            # FSDP2 assigns its shard and the tensor of all shards in turn. In a tuple, it does not
            # count as a second parameter.
            self._sharded = (value,)
        # transformers loads an adapter by assignment; casts and moves of a module do not assign.
        if name == "indices" and self._is_replica:
            self._note_arranged()  # its pattern is assigned too
        elif name == "indices":
            self._arrange()
            if self.search is not None:
                self.location_training.indices_replaced(self)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        layer = self.name if prefix in ("", "spectrum.") else prefix.rstrip(".")
        old = [name for name in OLD_KEYS if prefix + name in state_dict]
        if old:
            error_msgs.append(old_checkpoint(layer, old))
            return
        saved = {
            name: state_dict.get(prefix + name) for name in ("coefficients", "indices", "shape")
        }
        wrong = mistake(saved, self._size, self.coefficients.shape[0])
        if wrong:
            error_msgs.append(f"{layer}: {wrong}")
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if saved["indices"] is not None:
            self._arrange()
            if self.search is not None:
                self.location_training.indices_replaced(self)

    def extra_repr(self) -> str:
        """What print shows."""
        b = self.coefficients.shape[0]
        return f"{b} components of {self._size[0]}×{self._size[1]}, scaling={self.scaling}"


def old_checkpoint(layer: str, keys: list[str]) -> str:
    """The message on a checkpoint of an earlier version."""
    return (
        f"{layer}: an earlier version of loca-theory saved this checkpoint (it has "
        f"{', '.join(map(repr, keys))}); this version cannot read it, so train it again"
    )


def _check(shape: tuple[int, int], n_components: int, scaling: float, seed: Any, name: str) -> None:
    p, q = shape
    check_whole(f"{name}: the number of components", n_components, 1)
    if n_components > p * q:
        msg = f"{name}: {n_components} components do not fit into {p}×{q} = {p * q} locations; "
        msg += "reduce n_components (in PEFT n_frequency, or n_frequency_pattern for this layer)"
        raise InvalidArgumentError(msg)
    check_scaling(f"{name}: the scaling", scaling)
    for one in seed if isinstance(seed, tuple) else (seed,):
        check_whole(f"{name}: the seed", one, 0)

"""Conversion of a full fine-tune to the LoCA or LoRA adapter with the smallest error, for PEFT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.adapter_points import (
    DTYPES,
    adapter_point,
    point_of,
    profile_point,
    restored_profile,
    unpacked,
)
from loca_theory.checkpoints.adapter_size import AdapterSize
from loca_theory.checkpoints.checkpoint import DamagedError
from loca_theory.checkpoints.extraction_result import Adapter, ExtractedMatrix, Extraction, reasons
from loca_theory.checkpoints.extraction_rows import Split, row_of
from loca_theory.checkpoints.linear_layers import Layer, layers_of, module_names
from loca_theory.checkpoints.pairs import CheckpointPair, open_pair
from loca_theory.checkpoints.peft_config import adapter_config, parameter_prefix
from loca_theory.checkpoints.placement import placed
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.saved_modules import SavedModules, find_saved_modules
from loca_theory.checkpoints.selection import Selection
from loca_theory.checkpoints.sources import Source, describe, is_path
from loca_theory.checkpoints.total_size import TotalSize
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import DEFAULT_RUNNER, Runner, manifest

if TYPE_CHECKING:
    import torch

_PROFILE, _ADAPTER = "energy-profile", "adapter"


def extract(
    base: Source,
    tuned: Source,
    method: Literal["loca", "lora", "best"] = "loca",
    *,
    rank: int | None = None,
    components: int | None = None,
    allocate: int | str | TotalSize | None = None,
    energy: float | None = None,
    floor: int = 0,
    cap: int | None = None,
    save_modules: str | Iterable[str] = (),
    dtype: str = "float32",
    include: str | None = None,
    exclude: str | None = None,
    max_size: int | None = None,
    device: str = "auto",
    runner: Runner = DEFAULT_RUNNER,
) -> Extraction:
    """Approximate each increment of a full fine-tune by the best adapter of a method and size.

    The best adapter has the smallest squared error. Embeddings are left out because an adapter of
    linear layers cannot represent them; ``save_modules`` stores them whole. Convolutions can have
    LoRA only.

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module.
        tuned: The fine-tuned checkpoint, in any of these forms.
        method: ``loca``: the largest DCT coefficients and their locations; ``lora``: the truncated
            singular value decomposition, split evenly between A and B; ``best``: for each matrix
            the one with the smaller error, in two adapters.
        rank: LoRA's rank. For LoCA it sets the paper's budget: (p + q) rank / 2 coefficients, each
            with a location that costs as much as the coefficient.
        components: Number of LoCA's coefficients per matrix, instead of a rank.
        allocate: Total of all matrices, instead of a size for each: a number of trainable numbers,
            such as 200000 or ``"200k"``, or bytes of the stored tensors, such as ``"4MB"``. It is
            split so that the adapter retains the most energy.
        energy: Fraction of the energy of all increments together. The adapter is the smallest one,
            in trainable numbers, that retains it before rounding to the stored type.
        floor: Smallest rank or number of coefficients of a matrix in such a split.
        cap: Largest rank or number of coefficients of a matrix in such a split.
        save_modules: Regular expressions. The modules of the fine-tune with a tensor whose name
            contains a match are stored whole, as PEFT's ``modules_to_save``.
        dtype: Type of the stored numbers: ``float32``, ``float16`` or ``bfloat16``. Errors include
            the rounding to it.
        include: Regular expression; only matrices whose name contains a match are extracted.
        exclude: Regular expression; matrices whose name contains a match are left out.
        max_size: Matrices with more entries are left out.
        device: Where the linear algebra runs: ``auto``, ``cpu`` or ``cuda[:N]``.
        runner: How matrices are computed, one after the other or on workers. Its store holds the
            energy profiles of the split, by the digest of what the increments are computed from;
            the adapters themselves are not stored. Checkpoints in memory are converted in this
            process.

    Raises:
        InvalidArgumentError: not exactly one of rank, components, allocate and energy is given, the
            total is too small, no matrix is left, or the fine-tuned checkpoint is an adapter
            already.
        ResourceError: a file is damaged or cannot be read, or there is not enough memory.

    Example:
        >>> from loca_theory.checkpoints import demo_pair
        >>> found = extract(*demo_pair(), "lora", allocate=6000)
        >>> len(found.matrices), found.error < found.uniform_error < 0.5
        (9, True)
    """
    from loca_theory.transforms import resolve_device

    size = AdapterSize(method, rank, components, allocate, energy, floor, cap)
    find("dtype", dtype, DTYPES)
    patterns = _arguments.as_tuple(save_modules)
    runner = _arguments.instance("runner", runner, Runner)
    pair = open_pair(base, tuned, Selection(include, exclude, max_size, smallest_side=1))
    if pair.base is None:
        msg = "the fine-tuned checkpoint (tuned) is an adapter already; pass one with full weights"
        raise InvalidArgumentError(msg)
    device = resolve_device(device)
    runner = placed(runner, [pair], device)
    saved = find_saved_modules(pair, patterns)
    extractor = _Extractor(pair, size, dtype, device, runner, saved)
    extractor.choose_layers()
    rows, tensors = extractor.run()
    grid = {
        "base": describe(base), "finetuned": describe(tuned), "method": method, "r": rank,
        "components": components,
        "allocate": None if size.allocate is None else str(size.allocate), "energy": energy,
        "floor": floor, "cap": cap, "save_modules": list(patterns), "include": include,
        "exclude": exclude, "max_size": max_size,
    }  # fmt: skip
    return Extraction(
        manifest=manifest(grid=grid, seed=None, device=extractor.device, dtype=dtype),
        matrices=tuple(rows),
        skipped=tuple(extractor.skipped),
        adapters=extractor.adapters(_name(base), rows, tensors),
    )


@dataclass
class _Extractor:
    """The steps of an extraction.

    Attributes:
        pair: The checkpoints.
        size: Size of the adapters.
        dtype: Type of the stored numbers.
        device: Where the linear algebra runs.
        runner: How matrices are computed.
        saved: Modules that are stored whole.
    """

    pair: CheckpointPair
    size: AdapterSize
    dtype: str
    device: str
    runner: Runner
    saved: SavedModules

    def choose_layers(self) -> None:
        """Find the layers that can have an adapter."""
        self.layers: list[Layer] = []
        # A tensor that is stored whole is part of the adapter, so it is not skipped.
        whole = set(self.saved.tensors.values())
        self.skipped = [one for one in self.pair.skipped if one.name not in whole]
        for layer in layers_of(self.pair):
            if self.saved.contains(layer.own):
                continue
            obstacle = layer.obstacle
            if layer.kernel and "lora" not in self.size.methods:
                obstacle = obstacle or "convolution: LoCA adapts linear layers only"
            if obstacle:
                self.skipped.append(Skipped(layer.name, obstacle))
            else:
                self.layers.append(layer)
        self._check_any(self.layers)

    def run(
        self,
    ) -> tuple[list[ExtractedMatrix], dict[str, dict[str, torch.Tensor]]]:
        """The rows of all matrices, and the tensors of the adapters by layer."""
        split = self._split() if self.size.is_split else None
        points, layers = [], []
        for layer in self.layers:
            count, methods = None, self._methods(layer)
            if split is not None:
                count, methods = split.sizes[layer.name], [split.methods[layer.name]]
            if count != 0:
                layers.append(layer)
                points.append(point_of(_ADAPTER, layer, count=count, methods=methods))
        # Results of this step are large, and computing them takes less long than the profiles.
        compute = partial(
            adapter_point, pair=self.pair, size=self.size, dtype=self.dtype, device=self.device
        )
        found = replace(self.runner, store=None).run(points, compute)
        results = dict(zip([layer.name for layer in layers], found, strict=True))
        rows: list[ExtractedMatrix] = []
        tensors: dict[str, dict[str, torch.Tensor]] = {}
        for layer in self.layers:
            result = results.get(layer.name)
            if result is None and split is not None:
                rows.append(split.row_of_nothing(layer))
            elif result is not None and self._is_usable(layer, result):
                rows.append(row_of(layer, result, split))
                tensors[layer.own] = unpacked(result["tensors"])
        self._check_any(rows)
        if not tensors:
            msg = "no layer gets an adapter of this size that the type can store; pass a larger "
            raise InvalidArgumentError(msg + 'allocate="..." or dtype="float32"')
        return rows, tensors

    def _methods(self, layer: Layer) -> list[str]:
        """Methods that a layer can have."""
        return [one for one in self.size.methods if one == "lora" or not layer.kernel]

    def _split(self) -> Split:
        """Compute the energy profiles, and split the total; layers without one are skipped."""
        store = self.runner.open_store(profile_point)
        points = [
            point_of(
                _PROFILE,
                layer,
                methods=self._methods(layer),
                entries=None if store is None else self._fingerprint(layer),
            )
            for layer in self.layers
        ]
        compute = partial(profile_point, pair=self.pair, device=self.device)
        results = self.runner.run(points, compute)
        pairs = list(zip(self.layers, results, strict=True))
        found = {layer.name: one for layer, one in pairs if self._is_usable(layer, one)}
        self.layers = [layer for layer in self.layers if layer.name in found]
        self._check_any(self.layers)
        number_bytes = DTYPES[self.dtype]
        profiles = {
            name: {
                method: restored_profile(
                    name, one, method, self.size.cost(method, tuple(one["shape"]), number_bytes)
                )
                for method in one["methods"]
            }
            for name, one in found.items()
        }
        methods, allocation = self.size.split(profiles)
        shapes = {name: tuple(one["shape"]) for name, one in found.items()}
        return Split(methods, allocation, shapes, has_uniform=len(self.size.methods) == 1)

    def _fingerprint(self, layer: Layer) -> str | None:
        """Digest of what the increment is computed from; None if that cannot be read."""
        try:
            return self.pair.fingerprint(layer.name)
        except DamagedError:  # which the computation reports
            return None

    def _is_usable(self, layer: Layer, result: Mapping[str, Any]) -> bool:
        """Whether a result is not a reason to leave the layer out."""
        for key in ("left_out", "damaged"):
            if key in result:
                self.skipped.append(Skipped(layer.name, result[key], damaged=key == "damaged"))
                return False
        return True

    def _check_any(self, left: Sequence[Any]) -> None:
        if not left:
            msg = f"no layer is left to extract (left out: {reasons(self.skipped)}); "
            msg += 'change include="...", exclude="..." or max_size="..."'
            raise InvalidArgumentError(msg)

    def adapters(
        self,
        base: str | None,
        rows: Sequence[ExtractedMatrix],
        tensors: Mapping[str, Mapping[str, torch.Tensor]],
    ) -> dict[str, Adapter]:
        """The adapters by method; modules that are stored whole go to the first one."""
        import torch

        others, saved = module_names(self.pair), self.saved
        transposed = {layer.own for layer in self.layers if layer.is_transposed}
        found: dict[str, Adapter] = {}
        for method in self.size.methods:
            mine = [one for one in rows if one.method == method and one.name in tensors]
            if not mine:
                continue
            parameters = {
                f"{parameter_prefix(one.name, method)}.{key}": tensor
                for one in mine
                for key, tensor in tensors[one.name].items()
            }
            if not found:
                parameters |= saved.load(self.pair, getattr(torch, self.dtype))
            config = adapter_config(
                method,
                base,
                {one.name.removesuffix(".weight"): one.components or one.r or 0 for one in mine},
                others,
                is_transposed=any(one.name in transposed for one in mine),
                saved_modules=() if found else saved.entries,
                ensure_weight_tying=not found and saved.has_tied_head,
            )
            found[method] = Adapter(parameters, config)
        return found


def _name(base: Source) -> str | None:
    """Name of the base model for the adapter's configuration; None if it has no name."""
    if is_path(base):
        return describe(base).removeprefix("hub:")
    return getattr(base, "name_or_path", None) or None

"""Conversion of a full fine-tune to the LoCA or LoRA adapter with the smallest error, for PEFT."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.adapter_folder import README, WEIGHTS, check_folder, digest
from loca_theory.checkpoints.checkpoint import DamagedError, read_json
from loca_theory.checkpoints.conv1d import has_conv1d_name, stores_transposed
from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.pairs import CheckpointPair, not_finite, open_pair
from loca_theory.checkpoints.rows import Skipped
from loca_theory.checkpoints.safetensors_files import SafetensorsCheckpoint
from loca_theory.checkpoints.selection import Selection
from loca_theory.checkpoints.sources import ADAPTER_CONFIG, Source, describe, is_path
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps import DEFAULT_RUNNER, Result, Runner, manifest, rows
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    import torch

Method = Literal["loca", "lora"]
TITLES = {"loca": "LoCA", "lora": "LoRA"}

# A full SVD of a matrix with at most this many rows or columns is faster than a truncated one.
_FULL_SVD_UP_TO = 1024
_KEY = "base_model.model.{}"
_CARD = """---
library_name: peft
base_model: {base}
---
# {title}

The best approximation of a full fine-tune by a {title} adapter, matrix by matrix, with {budget}.
Its relative squared error over the {count} adapted increments is {error:.1%}. Changes to other
tensors are not part of the adapter. Left out: {left_out}.

Its weights have names such as `{first}`. Load it into the model class that uses these names.

```python
{imports}from peft import PeftModel

model = PeftModel.from_pretrained(base_model, "PATH_OR_NAME_OF_THIS_ADAPTER")
```
"""


@dataclass(frozen=True)
class ExtractedMatrix:
    """Size and error of the best adapter of one increment.

    Attributes:
        name: Name of the weight.
        shape: (p, q), after a ``Conv1D`` weight is transposed.
        r: LoRA's rank; None for LoCA.
        components: Number of LoCA's coefficients; None for LoRA.
        numbers: Number of learned parameters.
        error: Relative squared error of the reconstruction.
        energy: Squared norm of the increment.
    """

    name: str
    shape: tuple[int, int]
    r: int | None
    components: int | None
    numbers: int
    error: float
    energy: float


@dataclass(frozen=True, repr=False)
class Extraction(Result):
    """An adapter, ready to be saved.

    Attributes:
        matrices: Size and error of the adapter, by matrix.
        skipped: Tensors that are not part of the adapter.
        tensors: Parameters of the adapter, under the names that PEFT gives them.
        config: Configuration of the adapter, as PEFT stores it.
    """

    matrices: tuple[ExtractedMatrix, ...] = rows(ExtractedMatrix)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict, compare=False)
    config: Mapping[str, Any] = field(default_factory=dict)
    command: ClassVar[str] = "extract"

    @property
    def method(self) -> Method:
        """``loca`` or ``lora``."""
        return self.manifest["grid"]["method"]

    @property
    def error(self) -> float:
        """Relative squared error over all increments together, weighted by energy."""
        total = sum(one.energy for one in self.matrices)
        return sum(one.error * one.energy for one in self.matrices) / total if total else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per matrix, the total error, skipped tensors, manifest."""
        return {
            "rows": [asdict(one) for one in self.matrices],
            "error": self.error,
            "skipped": [{"name": one.name, "reason": one.reason} for one in self.skipped],
            "manifest": self.manifest,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write the adapter in PEFT's format, and the tables beside it.

        The header of the weights file holds a digest of each other file of the adapter, so that
        :func:`check_folder` can recognise these files.

        Raises:
            ResourceError: the folder cannot be written to, or holds part of a model, or an adapter
                or README that no extraction wrote.
        """
        from safetensors.torch import save_file

        folder = _arguments.path("folder", folder)
        writable_folder(check_folder(folder))
        config = json.dumps(self.config, indent=2) + "\n"
        texts = {README: self._card(), ADAPTER_CONFIG: config}
        contents = {name: text.encode() for name, text in texts.items()}
        paths = [folder / WEIGHTS, *(folder / name for name in contents)]
        # Delete the old files first: if the process is killed while it writes, no file is left
        # whose digest is not in the header of the weights.
        for path in reversed(paths[1:]):
            path.unlink(missing_ok=True)
        digests = {name: digest(content) for name, content in contents.items()}
        header = {"format": "pt", **digests}
        write_atomically(paths[0], lambda path: save_file(dict(self.tensors), path, header))
        for name, content in contents.items():
            write_atomically(folder / name, lambda path, content=content: path.write_bytes(content))
        return paths + super().save(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load the adapter and the tables that :meth:`save` wrote.

        Raises:
            ResourceError: a file is missing, or another version of the package wrote it.
        """
        tables, adapter = super().load(folder), SafetensorsCheckpoint(Path(folder) / WEIGHTS)
        tensors = {name: adapter.load(name) for name in adapter.entries}
        config = read_json(Path(folder) / ADAPTER_CONFIG)
        return replace(tables, tensors=tensors, config=config)

    def _card(self) -> str:
        grid = self.manifest["grid"]
        r, components = grid["r"], grid["components"]
        imports = 'import loca_theory.adapters  # pip install "loca-theory[adapters]"\n'
        return _CARD.format(
            base=json.dumps(self.config["base_model_name_or_path"]),
            title=TITLES[self.method],
            budget=f"r = {r}" if r is not None else f"{components} coefficients per matrix",
            error=self.error,
            count=len(self.matrices),
            imports=imports if self.method == "loca" else "",
            first=self.matrices[0].name,
            left_out=_reasons(self.skipped),
        )


def extract(
    base: Source,
    tuned: Source,
    method: Method = "loca",
    *,
    rank: int | None = None,
    components: int | None = None,
    include: str | None = None,
    exclude: str | None = None,
    max_size: int | None = None,
    runner: Runner = DEFAULT_RUNNER,
) -> Extraction:
    """Approximate each increment of a full fine-tune by the best adapter of a method and size.

    The best adapter has the smallest squared error. Embeddings are left out because an adapter of
    linear layers cannot represent them.

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module.
        tuned: The fine-tuned checkpoint, in any of these forms.
        method: ``loca``: the largest DCT coefficients and their locations; ``lora``: the truncated
            singular value decomposition, split evenly between A and B.
        rank: LoRA's rank. For LoCA it sets the paper's budget: (p + q) rank / 2 coefficients, each
            with a location that costs as much as the coefficient.
        components: Number of LoCA's coefficients per matrix, instead of a rank.
        include: Regular expression; only matrices whose name contains a match are extracted.
        exclude: Regular expression; matrices whose name contains a match are left out.
        max_size: Matrices with more entries are left out.
        runner: Only its progress callback is used; it counts matrices.

    Raises:
        InvalidArgumentError: not exactly one of rank and components is given, no matrix is left,
            or the fine-tuned checkpoint is an adapter already.
        ResourceError: a file is damaged or cannot be read, or there is not enough memory.

    Example:
        >>> from loca_theory.checkpoints import demo_pair
        >>> found = extract(*demo_pair(), "lora", rank=4)
        >>> len(found.matrices), 0 < found.error < 0.5
        (8, True)
    """
    size = _Size(method, rank, components)
    runner = _arguments.instance("runner", runner, Runner)
    pair = open_pair(base, tuned, Selection(include, exclude, max_size, smallest_side=1))
    if pair.base is None:
        msg = "the fine-tuned checkpoint (tuned) is an adapter already; pass one with full weights"
        raise InvalidArgumentError(msg)
    matrices: list[ExtractedMatrix] = []
    skipped = list(pair.skipped)
    tensors: dict[str, torch.Tensor] = {}
    conv1d, is_transposed = stores_transposed(pair.base), False
    for done, (name, other) in enumerate(pair.names.items()):
        if runner.progress:
            runner.progress(done, len(pair.names))
        # A bare model's names lack the prefix that the names in a model with a head have.
        own = max(name, other, key=len)
        turned = conv1d and has_conv1d_name(own)
        try:
            matrix, mine = _best(pair, name, own, size, is_transposed=turned)
        except _LeftOutError as error:
            skipped.append(Skipped(name, str(error)))
        except DamagedError as error:
            skipped.append(Skipped(name, str(error), damaged=True))
        else:
            matrices.append(matrix)
            tensors |= mine
            is_transposed |= turned
    if runner.progress:
        runner.progress(len(pair.names), len(pair.names))
    if not matrices:
        msg = f"no linear layer is left to extract (left out: {_reasons(skipped)}); "
        msg += 'change include="...", exclude="..." or max_size="..."'
        raise InvalidArgumentError(msg)
    return Extraction(
        manifest=manifest(
            grid={
                "base": describe(base), "finetuned": describe(tuned), "method": method, "r": rank,
                "components": components, "include": include, "exclude": exclude,
                "max_size": max_size,
            },
            seed=None,
            dtype="float32",
        ),
        matrices=tuple(matrices),
        skipped=tuple(skipped),
        tensors=tensors,
        config=_config(method, _name(base), matrices, is_transposed=is_transposed),
    )  # fmt: skip


@dataclass(frozen=True)
class _Size:
    """Size of an adapter; see :func:`extract`."""

    method: Method
    rank: int | None
    components: int | None

    def __post_init__(self) -> None:
        find("method", self.method, TITLES)
        for name in ("rank", "components"):
            if getattr(self, name) is not None:
                _arguments.fields_to_int(self, name)
        if self.method == "lora" and self.components is not None:
            msg = "components is for LoCA only; give the size of a LoRA adapter as a rank, "
            msg += "such as rank=8"
            raise InvalidArgumentError(msg)
        if (self.rank is None) == (self.components is None):
            either = "rank=8" if self.method == "lora" else "either rank=8 or components=1000"
            msg = f"the adapter needs exactly one size; pass {either}"
            raise InvalidArgumentError(msg)
        size = (self.rank or 0) if self.components is None else self.components
        if size < 1:
            name = "rank" if self.components is None else "components"
            msg = f"{name} must be at least 1, not {size}"
            raise InvalidArgumentError(msg)

    def count(self, p: int, q: int) -> int:
        """LoRA's rank, or the number of LoCA's coefficients, for a p×q matrix."""
        if self.method == "lora":
            return min(self.rank or 0, p, q)
        return min(self.components or (p + q) * (self.rank or 0) // 2, p * q)


class _LeftOutError(Exception):
    """A matrix cannot be part of the adapter, for the reason in the message."""


def _best(
    pair: CheckpointPair, name: str, own: str, size: _Size, *, is_transposed: bool
) -> tuple[ExtractedMatrix, dict[str, torch.Tensor]]:
    """The best adapter of one increment: its size and error, and its parameters."""
    from loca_theory.transforms.inputs import balanced

    if not own.endswith(".weight"):
        raise _LeftOutError("not the weight of a layer")  # noqa: EM101
    if kind_of(own) == "embedding" and "lm_head" not in own:
        raise _LeftOutError("embedding: not a linear layer")  # noqa: EM101
    if len(pair.stored_shape(name)) > 2:
        raise _LeftOutError("experts or a convolution: not a linear layer")  # noqa: EM101
    if name in pair.notes:
        raise _LeftOutError(f"not the same layer: {pair.notes[name]}")  # noqa: EM102
    increment = pair.increment(name)
    if reason := not_finite(increment):
        raise DamagedError(reason)
    increment, exponent = balanced(increment, "increment")
    energy = increment.double().square().sum().item()
    if energy == 0:
        raise _LeftOutError("unchanged by the fine-tune")  # noqa: EM101
    if is_transposed:
        increment = increment.T
    p, q = increment.shape
    count, is_loca = size.count(p, q), size.method == "loca"
    best = _best_components if is_loca else _best_factors
    tensors, retained = best(increment, count, exponent)
    learned = [one for one in tensors.values() if one.is_floating_point()]
    if not all(one.isfinite().all() and one.any() for one in learned):
        reason = "too large or too small: an adapter holds float32 numbers"
        msg = f"{reason}, and the entries of the increment are about 2^{exponent}"
        raise _LeftOutError(msg)
    matrix = ExtractedMatrix(
        name=own,
        shape=(p, q),
        r=None if is_loca else count,
        components=count if is_loca else None,
        numbers=count if is_loca else (p + q) * count,
        error=min(max(1 - retained / energy, 0.0), 1.0),
        energy=math.ldexp(energy, 2 * exponent),
    )
    prefix = _KEY.format(own.removesuffix(".weight")) + (".loca_spectrum" if is_loca else "")
    return matrix, {f"{prefix}.{key}": tensor for key, tensor in tensors.items()}


def _config(
    method: Method,
    base: str | None,
    matrices: Sequence[ExtractedMatrix],
    *,
    is_transposed: bool,
) -> dict[str, Any]:
    """The configuration of an adapter, as PEFT stores it."""
    sizes = {one.name.removesuffix(".weight"): one.components or one.r for one in matrices}
    usual = Counter(sizes.values()).most_common(1)[0][0]
    others = {module: size for module, size in sizes.items() if size != usual}
    common = {
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": is_transposed,
        "inference_mode": True,
        "target_modules": list(sizes),
    }
    if method == "loca":
        return {
            "peft_type": "LOCA",
            **common,
            "n_frequency": usual,
            "n_frequency_pattern": {re.escape(module): size for module, size in others.items()},
            "scaling": 1.0,
            "alternating_steps": 0,
        }
    return {
        "peft_type": "LORA",
        **common,
        "r": usual,
        "lora_alpha": usual,
        "lora_dropout": 0.0,
        "rank_pattern": others,
        "alpha_pattern": others,
    }


def _name(base: Source) -> str | None:
    """Name of the base model for the adapter's configuration; None if it has no name."""
    if is_path(base):
        return describe(base).removeprefix("hub:")
    return getattr(base, "name_or_path", None) or None


def _best_components(
    increment: torch.Tensor, count: int, exponent: int
) -> tuple[dict[str, torch.Tensor], float]:
    """Largest DCT coefficients of 2ᵉ times a matrix, and the energy of the matrix they retain."""
    import torch

    from loca_theory.transforms import dct2
    from loca_theory.transforms.inputs import times_power_of_two

    spectrum = dct2(increment).flatten()
    flat = spectrum.abs().topk(count, sorted=False).indices.sort().values
    q = increment.shape[1]
    indices = torch.stack([flat // q, flat % q], dim=1)
    best = spectrum[flat].double()
    stored = times_power_of_two(best, exponent).float()
    tensors = {
        "coefficients": stored,
        "indices": indices,
        "shape": torch.tensor(increment.shape),
    }
    # Rounding to float32 loses energy as well, much of it near the smallest float32 numbers.
    lost = best - times_power_of_two(stored.double(), -exponent)
    return tensors, (best.square().sum() - lost.square().sum()).item()


def _best_factors(
    increment: torch.Tensor, r: int, exponent: int
) -> tuple[dict[str, torch.Tensor], float]:
    """Truncated SVD of 2ᵉ times a matrix as B·A, and the energy of the matrix it retains."""
    import torch

    from loca_theory.transforms.inputs import times_power_of_two

    if min(increment.shape) <= _FULL_SVD_UP_TO or 4 * r >= min(increment.shape):
        u, s, vh = torch.linalg.svd(increment, full_matrices=False)
        u, s, vh = u[:, :r], s[:r], vh[:r]
    else:
        import numpy as np
        from scipy.sparse.linalg import svds

        start = np.random.default_rng(0).normal(size=min(increment.shape)).astype(np.float32)
        parts = svds(increment.numpy(), k=r, v0=start)
        u, s, vh = (torch.from_numpy(part.copy()) for part in parts)
    root, half = s.clamp(min=0).sqrt(), exponent // 2
    tensors = {
        "lora_A.weight": times_power_of_two(root[:, None] * vh, half).float().contiguous(),
        "lora_B.weight": times_power_of_two(u * root, exponent - half).float().contiguous(),
    }
    return tensors, s.double().square().sum().item()


def _reasons(skipped: Sequence[Skipped]) -> str:
    counts = Counter(one.reason.partition(":")[0] for one in skipped)
    reasons = [f"{n} tensor{'s' * (n > 1)} ({reason})" for reason, n in counts.most_common(6)]
    return ", ".join(reasons) or "nothing"

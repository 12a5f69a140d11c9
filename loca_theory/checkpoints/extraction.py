"""From a full fine-tune to an adapter that PEFT loads: the best LoCA or LoRA of every increment."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loca_theory.checkpoints.adapter_folder import README, WEIGHTS, check_folder, digest
from loca_theory.checkpoints.names import kind_of
from loca_theory.checkpoints.pairs import CheckpointPair, Skipped, not_finite
from loca_theory.checkpoints.sources import ADAPTER_CONFIG, DamagedError
from loca_theory.errors import InvalidArgumentError
from loca_theory.sweeps.files import writable_folder, write_atomically

if TYPE_CHECKING:
    import torch

Method = Literal["loca", "lora"]

EXTRACTION_COLUMNS = ("name", "shape", "r", "components", "numbers", "error", "energy")
"""What a row of an extraction has."""

# Up to this side a full decomposition takes less time than finding the leading part alone.
_FULL_SVD_UP_TO = 1024
# GPT-2 and its relatives keep these weights transposed (``Conv1D``).
_TRANSPOSED = re.compile(r"\.(c_attn|q_attn|c_proj|c_fc)\.weight$")
_FUSED = ".c_attn.weight"
_KEY = "base_model.model.{}"
_CARD = """---
library_name: peft
base_model: {base}
---
# {title}

The best approximation of a full fine-tune by a {title} adapter, matrix by matrix, with {budget}.
It leaves {error:.1%} of the energy of the {count} adapted increments. What the fine-tune changed
elsewhere is not in it: {left_out}.

Its layers are named as in `{first}`; load it into the model class whose layers are named so.

```python
{imports}from peft import PeftModel

model = PeftModel.from_pretrained(base_model, "PATH_OR_NAME_OF_THIS_ADAPTER")
```
"""


@dataclass(frozen=True)
class AdapterSize:
    """How large an adapter may be; one of the two.

    Attributes:
        r: LoRA's rank. For LoCA the paper's exchange: (p + q) r / 2 coefficients, each with a place
            that costs as much as the coefficient.
        budget: Learned numbers a matrix: LoCA's coefficients, LoRA's (p + q) r.

    Raises:
        InvalidArgumentError: not exactly one is given, or it is below 1.
    """

    r: int | None = None
    budget: int | None = None

    def __post_init__(self) -> None:
        if (self.r is None) == (self.budget is None):
            msg = "say how large the adapter may be: one of --r and --budget, not both"
            raise InvalidArgumentError(msg)
        if (self.r or self.budget or 0) < 1:
            msg = f"an adapter needs a size of at least 1, not {self.r or self.budget}"
            raise InvalidArgumentError(msg)

    def rank(self, p: int, q: int) -> int:
        """LoRA's rank for a p×q matrix; 0 where the budget is too small for rank 1."""
        r = self.r if self.r is not None else (self.budget or 0) // (p + q)
        return min(r, p, q)

    def components(self, p: int, q: int) -> int:
        """LoCA's coefficients for a p×q matrix."""
        count = self.budget if self.budget is not None else (p + q) * (self.r or 0) // 2
        return min(count, p * q)

    def __str__(self) -> str:
        return f"r = {self.r}" if self.r is not None else f"{self.budget} numbers a matrix"


@dataclass
class Extraction:
    """An adapter, ready to be written.

    Attributes:
        method: ``loca`` or ``lora``.
        size: How large it may be.
        base: What its configuration calls the base model.
        rows: For each matrix its ``name``, ``shape``, LoRA's ``r`` or LoCA's ``components`` (the
            other is None), learned ``numbers``, relative squared ``error`` of the reconstruction,
            and ``energy``, the squared norm of the increment.
        skipped: What has no part in it.
        tensors: Its parameters, under the names that PEFT gives them.
    """

    method: Method
    size: AdapterSize
    base: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    is_transposed: bool = False

    @property
    def error(self) -> float:
        """The part of all increments' energy that the adapter leaves."""
        total = sum(row["energy"] for row in self.rows)
        return sum(row["error"] * row["energy"] for row in self.rows) / total if total else 0.0

    def write(self, folder: Path) -> list[Path]:
        """Write the adapter as PEFT saves one. The configuration comes last.

        The header of the weights has the digest of each file beside them, by which
        :func:`check_folder` knows them again.

        Raises:
            ResourceError: the folder cannot be written to, or holds what no extraction wrote.
        """
        from safetensors.torch import save_file

        writable_folder(check_folder(folder))
        texts = {README: self._card(), ADAPTER_CONFIG: json.dumps(self.config(), indent=2) + "\n"}
        contents = {name: text.encode() for name, text in texts.items()}
        paths = [folder / WEIGHTS, *(folder / name for name in contents)]
        # Killed in between, it leaves no file that the weights do not know.
        for path in reversed(paths[1:]):
            path.unlink(missing_ok=True)
        digests = {name: digest(content) for name, content in contents.items()}
        header = {"format": "pt", **digests}
        write_atomically(paths[0], lambda path: save_file(self.tensors, path, header))
        for name, content in contents.items():
            write_atomically(folder / name, lambda path, content=content: _write(path, content))
        return paths

    def config(self) -> dict[str, Any]:
        """The configuration of the adapter, as PEFT stores it."""
        modules = [row["name"].removesuffix(".weight") for row in self.rows]
        common = {
            "base_model_name_or_path": self.base,
            "bias": "none",
            "fan_in_fan_out": self.is_transposed,
            "inference_mode": True,
            "target_modules": modules,
        }
        which = "components" if self.method == "loca" else "r"
        sizes = {m: row[which] for m, row in zip(modules, self.rows, strict=True)}
        usual = max(set(sizes.values()), key=list(sizes.values()).count)
        others = {m: size for m, size in sizes.items() if size != usual}
        if self.method == "loca":
            pattern = {re.escape(m): size for m, size in others.items()}
            return {
                "peft_type": "LOCA",
                **common,
                "n_frequency": usual,
                "n_frequency_pattern": pattern,
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

    def _card(self) -> str:
        imports = 'import loca_theory.adapters  # pip install "loca-theory[adapters]"\n'
        return _CARD.format(
            base=json.dumps(self.base),
            title="LoCA" if self.method == "loca" else "LoRA",
            budget=self.size,
            error=self.error,
            count=len(self.rows),
            imports=imports if self.method == "loca" else "",
            first=self.rows[0]["name"],
            left_out=_reasons(self.skipped),
        )


def extract(
    pair: CheckpointPair,
    method: Method,
    size: AdapterSize,
    *,
    base: str,
    progress: Callable[[int, int], None] | None = None,
) -> Extraction:
    """The best adapter of one kind and size for every increment of linear layers.

    Embeddings are left out: an adapter of linear layers cannot hold them.

    Args:
        pair: The checkpoints.
        method: ``loca``: the largest DCT coefficients and their places; ``lora``: the truncated
            singular value decomposition, shared evenly between A and B.
        size: How large the adapter may be.
        base: What the configuration shall call the base model.
        progress: Called with (finished, total).

    Raises:
        InvalidArgumentError: no matrix is left, or the fine-tuned side is an adapter already.
        ResourceError: memory is short.
    """
    if pair.base is None:
        msg = "the fine-tuned side is an adapter already; name a full checkpoint"
        raise InvalidArgumentError(msg)
    found = Extraction(method, size, base, skipped=list(pair.skipped))
    conv1d = _stores_transposed(pair)
    for done, (name, other) in enumerate(pair.names.items()):
        if progress:
            progress(done, len(pair.names))
        # A bare model's names lack what those of a model with a head begin with.
        own = max(name, other, key=len)
        try:
            _add(found, pair, name, own, is_transposed=conv1d and bool(_TRANSPOSED.search(own)))
        except DamagedError as error:
            found.skipped.append(Skipped(name, str(error), damaged=True))
    if progress:
        progress(len(pair.names), len(pair.names))
    if not found.rows:
        msg = f"no linear layer is left to extract (left out: {_reasons(found.skipped)}); "
        msg += "widen the selection or the size of the adapter"
        raise InvalidArgumentError(msg)
    return found


def _add(
    found: Extraction, pair: CheckpointPair, name: str, own: str, *, is_transposed: bool
) -> None:
    from loca_theory.transforms.inputs import balanced

    if not own.endswith(".weight"):
        found.skipped.append(Skipped(name, "not the weight of a layer"))
        return
    if kind_of(own) == "embedding" and "lm_head" not in own:
        found.skipped.append(Skipped(name, "embedding: no linear layer"))
        return
    increment = pair.increment(name)
    if reason := not_finite(increment):
        raise DamagedError(reason)
    increment, exponent = balanced(increment, "increment")
    energy = increment.double().square().sum().item()
    if energy == 0:
        found.skipped.append(Skipped(name, "unchanged by the fine-tune"))
        return
    if is_transposed:
        increment = increment.T
    p, q = increment.shape
    module = _KEY.format(own.removesuffix(".weight"))
    r, components = None, None
    if found.method == "loca":
        components = found.size.components(p, q)
        tensors, kept = _best_components(increment, components, exponent)
        numbers = components
        prefix = f"{module}.loca_spectrum"
    else:
        r = found.size.rank(p, q)
        if r < 1:
            found.skipped.append(Skipped(name, f"the budget is below rank 1: {p}x{q}"))
            return
        tensors, kept = _best_factors(increment, r, exponent)
        numbers = (p + q) * r
        prefix = module
    learned = [one for one in tensors.values() if one.is_floating_point()]
    if not all(one.isfinite().all() and one.any() for one in learned):
        reason = "too large or too small: an adapter holds float32"
        found.skipped.append(Skipped(name, f"{reason}, and its entries are about 2^{exponent}"))
        return
    found.is_transposed |= is_transposed
    found.tensors |= {f"{prefix}.{key}": tensor for key, tensor in tensors.items()}
    found.rows.append(
        {
            "name": own,
            "shape": [p, q],
            "r": r,
            "components": components,
            "numbers": numbers,
            "error": min(max(1 - kept / energy, 0.0), 1.0),
            "energy": math.ldexp(energy, 2 * exponent),
        }
    )


def _best_components(
    increment: torch.Tensor, count: int, exponent: int
) -> tuple[dict[str, torch.Tensor], float]:
    """The largest DCT coefficients of 2ᵉ times a matrix, and the energy they hold of the matrix."""
    import torch

    from loca_theory.transforms import dct2
    from loca_theory.transforms.inputs import times_power_of_two

    spectrum = dct2(increment).flatten()
    flat = spectrum.abs().topk(count, sorted=False).indices.sort().values
    q = increment.shape[1]
    places = torch.stack([flat // q, flat % q], dim=1)
    best = spectrum[flat].double()
    stored = times_power_of_two(best, exponent).float()
    tensors = {
        "coefficients": stored,
        "places": places,
        "shape": torch.tensor(increment.shape),
    }
    # What storing rounds off is lost as well: near the smallest float32 numbers that is much.
    lost = best - times_power_of_two(stored.double(), -exponent)
    return tensors, (best.square().sum() - lost.square().sum()).item()


def _best_factors(
    increment: torch.Tensor, r: int, exponent: int
) -> tuple[dict[str, torch.Tensor], float]:
    """The leading singular triplets of 2ᵉ times a matrix as B·A, and their energy in the matrix."""
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


def _stores_transposed(pair: CheckpointPair) -> bool:
    """Whether the fused query, key and value weights are d×3d, as ``Conv1D`` has them."""
    entries = pair.base.entries if pair.base is not None else {}
    shapes = [entry.shape for name, entry in entries.items() if name.endswith(_FUSED)]
    return any(len(shape) == 2 and shape[1] > shape[0] for shape in shapes)


def _reasons(skipped: list[Skipped]) -> str:
    counts = Counter(one.reason.partition(":")[0] for one in skipped)
    return ", ".join(f"{count} tensors ({reason})" for reason, count in counts.most_common(6)) or (
        "nothing"
    )


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)

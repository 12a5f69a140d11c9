"""Outputs of models on the same inputs, and what is left of an adapter in a base of few bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loca_theory.checkpoints.source.checkpoint import any_error_as, one_line
from loca_theory.checkpoints.source.files import is_pickled, open_file
from loca_theory.checkpoints.source.open import Source, is_path, resolve
from loca_theory.errors import InvalidArgumentError, ResourceError

_BLOCK, _LEVELS = 64, 127
# Quantiles of a normal law, 0 among them. Source: T. Dettmers et al., QLoRA (2023), appendix E.
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@dataclass(frozen=True)
class OutputRow:
    """How the outputs of a model differ from those of the fine-tune on the same inputs.

    Attributes:
        model: ``base``, or ``adapter`` for the base with the adapter.
        error: Squared distance of the outputs, in units of that of the base's; 1 for the base.
        agreement: Fraction of positions at which the largest logit is the same; None if an output
            has less than two numbers.
        kl: Mean Kullback–Leibler divergence, in nats, from the fine-tune's softmax distribution to
            this model's; None as well.
        positions: Number of positions: tokens, or examples of a classifier.
    """

    model: str
    error: float
    agreement: float | None
    kl: float | None
    positions: int


def outputs_of(model: torch.nn.Module, inputs: Any) -> torch.Tensor:
    """Logits of a model, or its first output, one row per position.

    A list holds several batches of inputs.
    """
    batches = inputs if isinstance(inputs, list) else [inputs]
    outputs = [_output(model, batch) for batch in batches]
    return torch.cat([out.flatten(0, -2) if out.ndim > 1 else out[:, None] for out in outputs])


def _output(model: torch.nn.Module, inputs: Any) -> torch.Tensor:
    failure = f"{type(model).__name__} does not run on these inputs"
    with any_error_as(InvalidArgumentError, failure), torch.no_grad():
        arguments = inputs if isinstance(inputs, Mapping | tuple) else (inputs,)
        output = model(**arguments) if isinstance(arguments, Mapping) else model(*arguments)
    output = getattr(output, "logits", output)
    return (output if isinstance(output, torch.Tensor) else output[0]).double()


def relative_error(goal: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> float:
    """Squared distance from the goal, in units of that before; 0 if there was none."""
    change = float((goal - before).square().sum())
    return float((goal - after).square().sum()) / change if change else 0.0


def compared(
    model: str, goal: torch.Tensor, before: torch.Tensor, after: torch.Tensor
) -> OutputRow:
    """Compare outputs with those of the fine-tune, and with the distance of the base's."""
    error = relative_error(goal, before, after)
    if goal.shape[-1] < 2:
        return OutputRow(model, error, None, None, len(goal))
    agreement = float((goal.argmax(-1) == after.argmax(-1)).double().mean())
    log_p, log_q = goal.log_softmax(-1), after.log_softmax(-1)
    kl = float((log_p.exp() * (log_p - log_q)).sum(-1).mean())
    return OutputRow(model, error, agreement, max(kl, 0.0), len(goal))


def read_inputs(inputs: Any, *sources: Source) -> Any:
    """Inputs of a model, from a file if they are a path.

    A safetensors or PyTorch file holds tensors by the names of the model's arguments. Any other
    file holds one text per line, for the tokenizer in the folder of one of the sources.
    """
    if not isinstance(inputs, str | Path):
        return inputs
    path = Path(inputs)
    if not path.is_file():
        raise InvalidArgumentError(f"there is no file {path} with inputs")
    if is_pickled(path) is not None:
        stored = open_file(path)
        if stored.left_out or not stored.entries:
            raise InvalidArgumentError(
                f"{path} must hold tensors only, by the names of the model's arguments"
            )
        return [{name: stored.load(name) for name in stored.entries}]
    with any_error_as(InvalidArgumentError, f"{path} is neither a file of tensors nor a text"):
        texts = [text for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
    if not texts:
        raise InvalidArgumentError(f"{path} holds no text; write one per line")
    tokenizer = _tokenizer(sources)
    # One at a time, so that no position is padding.
    with any_error_as(InvalidArgumentError, f"the tokenizer cannot read a text of {path}"):
        return [dict(tokenizer(text, truncation=True, return_tensors="pt")) for text in texts]


def _tokenizer(sources: tuple[Source, ...]) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ResourceError(
            "texts as inputs need transformers: pip install 'loca-theory[adapters]'"
        ) from error
    reasons = []
    for folder in (resolve(source) for source in sources if is_path(source)):
        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except Exception as error:  # of any type, if a file is damaged
            reasons.append(f"{folder}: {one_line(error)}")
    msg = "no tokenizer can be read from the folders of the checkpoints; pass tensors, not texts"
    raise InvalidArgumentError(" - ".join([msg, *reasons]))


def check_requantise(bits: int | None) -> None:
    """Refuse a number of bits that no base is rounded to."""
    if bits not in (None, 8, 4):
        raise InvalidArgumentError(f"requantise must be 8 or 4 bits, not {bits}")


def quantised(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Weights rounded to LLM.int8 (8 bits, a scale per row) or NF4 (4 bits, one per 64 entries)."""
    flat = weight.float().flatten(0, -2)
    if bits == 8:
        scale = flat.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny) / _LEVELS
        return ((flat / scale).round() * scale).reshape(weight.shape)
    count = flat.numel()
    padded = torch.nn.functional.pad(flat.flatten(), (0, -count % _BLOCK)).reshape(-1, _BLOCK)
    scale = padded.abs().amax(1, keepdim=True).clamp(min=torch.finfo(flat.dtype).tiny)
    codes = torch.tensor(_NF4)
    nearest = torch.bucketize(padded / scale, (codes[1:] + codes[:-1]) / 2)
    return (codes[nearest] * scale).flatten()[:count].reshape(weight.shape)


def surviving_energy(before: torch.Tensor, after: torch.Tensor, bits: int) -> float:
    r"""Fraction of the energy of an adapter that is left in a base of few bits.

    The base is W = Q(before), and the sum is stored as Q(W + Δ) with Δ = after − before. This is
    :math:`1 - \|Q(W + Δ) - W - Δ\|^2 / \|Δ\|^2`. It is below 0 if rounding the sum moves it by more
    than the adapter does.
    """
    change = after.float() - before.float()
    base = quantised(before, bits)
    moved = quantised(base + change, bits) - base
    energy = float(change.double().square().sum())
    return 1 - float((moved - change).double().square().sum()) / energy if energy else 1.0

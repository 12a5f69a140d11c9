"""Changes that no LoRA or LoCA made: all weights, in bfloat16 or published; DoRA and SHiRA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import torch

import loca_theory as loca
from experiments.published.__main__ import increments
from experiments.published.wheels import STUDIES, Wheels
from experiments.tables import Row
from experiments.unmerged.merges import DTYPES, merged
from experiments.unmerged.training import TARGETS, encoder, train
from loca_theory.errors import LocaTheoryError

PUBLISHED = ("sre", "rxnfp", "rxnfp-10k", "chgnet", "ani")
# Of the published change, and the type that both sides are rounded to.
ROUNDED = ((1.0, "bfloat16"), (0.1, "bfloat16"), (1.0, "float16"))
HALF_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
OTHERS = {
    "DoRA": peft.LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, use_dora=True),
    "SHiRA": peft.ShiraConfig(r=8, target_modules=TARGETS),
}
_RATE = 1e-3


def claims(kind: str, base: Any, tuned: Any) -> Iterator[Row]:
    """One row per matrix that changed: whether something was claimed of it."""
    result = loca.unmerge(base, tuned, runner=loca.Runner(jobs=1, progress=False))
    for row in result.layers:
        yield {
            "kind": kind,
            "name": row.name,
            "changed": row.changed,
            "outcome": row.outcome,
            "form": row.form,
            "found_rank": row.rank,
        }


def of_all_weights(rate: float, steps: int) -> Iterator[Row]:
    """The rows of a training that rounds every weight at every step."""
    seed = HALF_RATES.index(rate)
    trained = train(lambda model: model, rate=rate, steps=steps, seed=seed, dtype=torch.bfloat16)
    yield from claims(f"all weights in bfloat16, rate {rate:g}", encoder(torch.bfloat16), trained)


def of_adapter(kind: str, seed: int, steps: int) -> Iterator[Row]:
    """The rows of an adapter of PEFT of another type, in bfloat16 or, of seed 1, in float16."""
    config = OTHERS[kind]
    model = train(
        lambda base: peft.get_peft_model(base, config), rate=_RATE, steps=steps, seed=seed
    )
    factors = peft.get_peft_model_state_dict(model)
    dtype = DTYPES["bfloat16" if seed == 0 else "float16"]
    stored = merged(encoder(dtype), config, factors, is_half=False, is_safe=False)
    yield from claims(kind, encoder(dtype), stored)


def of_published(data: Path, study: str) -> Iterator[Row]:
    """Published fine-tunes in float32, their changes scaled, both sides rounded."""
    try:
        pairs = list(STUDIES[study].pairs(Wheels(data, STUDIES[study].packages)))
    except LocaTheoryError as error:
        yield {"kind": study, "outcome": f"left out: {error}"}
        return
    for pair in pairs:
        matrices = {f"{name}.weight": sides for name, *sides in increments(pair)}
        for scale, dtype in ROUNDED:
            base = {name: side[0].to(DTYPES[dtype]) for name, side in matrices.items()}
            tuned = {
                name: (before + scale * (after - before)).to(DTYPES[dtype])
                for name, (before, after) in matrices.items()
            }
            for row in claims(study, base, tuned):
                yield {**row, "scale": scale, "dtype": dtype, "pair": pair.name}

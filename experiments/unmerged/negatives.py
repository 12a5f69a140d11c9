"""Changes that no LoRA or LoCA made: all weights, in bfloat16 or published; DoRA and SHiRA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import torch

import loca_theory as loca
from experiments.extracted import Row
from experiments.published.__main__ import increments
from experiments.published.wheels import STUDIES, Wheels
from experiments.unmerged.merges import DTYPES, merged
from experiments.unmerged.training import TARGETS, encoder, train
from loca_theory.errors import LocaTheoryError

PUBLISHED = ("sre", "rxnfp", "rxnfp-10k", "chgnet", "ani")
# Of the published change, and the type that both sides are rounded to.
ROUNDED = ((1.0, "bfloat16"), (0.1, "bfloat16"), (1.0, "float16"))
HALF_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)


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


def trained(steps: int, *, quick: bool) -> Iterator[Row]:
    """Trainings that round every weight at every step, and adapters of PEFT of other types."""
    for seed, rate in enumerate(HALF_RATES[: 1 if quick else None]):
        whole = train(lambda model: model, rate=rate, steps=steps, seed=seed, dtype=torch.bfloat16)
        yield from claims(f"all weights in bfloat16, rate {rate:g}", encoder(torch.bfloat16), whole)
    others = {
        "DoRA": (peft.LoraConfig(r=8, lora_alpha=16, target_modules=TARGETS, use_dora=True), 1e-3),
        "SHiRA": (peft.ShiraConfig(r=8, target_modules=TARGETS), 1e-3),
    }
    for kind, (config, rate) in others.items():
        for seed in range(1 if quick else 2):

            def adapted(model: Any, config: peft.PeftConfig = config) -> Any:
                return peft.get_peft_model(model, config)

            model = train(adapted, rate=rate, steps=steps, seed=seed)
            factors = peft.get_peft_model_state_dict(model)
            dtype = "bfloat16" if seed == 0 else "float16"
            start = encoder(DTYPES[dtype])
            stored = merged(encoder(DTYPES[dtype]), config, factors, is_half=False, is_safe=False)
            yield from claims(kind, start, stored)


def published(data: Path) -> Iterator[Row]:
    """Published fine-tunes in float32, their changes scaled, both sides rounded."""
    for study in PUBLISHED:
        try:
            pairs = list(STUDIES[study].pairs(Wheels(data, STUDIES[study].packages)))
        except LocaTheoryError as error:
            yield {"kind": study, "outcome": f"left out: {error}"}
            continue
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

"""Forward and backward pass of one layer, with LoCA's implementations and its rivals of PEFT.

Further measurements: the choices that LoCA makes by itself on a device, each compared with its
alternatives, and the steps in which its searches move components.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks._rivals import LOCA, Layer, Single, adapted, layer_step, sharing_weights, trained
from benchmarks.cuda.comparison import Build, Step, compare, judge_adapters
from benchmarks.cuda.session import Session
from loca_theory.adapters import (
    AlternatingSchedule,
    LoCALinear,
    follow,
    kernels,
    linear_operator,
)

RIVALS = ("frozen", "LoRA", "FourierFT", "LoCA", "WaveFT", "C3A", "SHiRA", *LOCA[1:])
LAYERS = (
    Layer(768, 1000, 4096, 8),
    Layer(4096, 150_000, 4096, 64, "bfloat16"),
    Layer(4096, 150_000, 512, 64),
    Layer(768, 1000, 512, 8),
    Layer(768, 1000, 4096, 8, "bfloat16"),
    Layer(768, 10_000, 1024, 16),
)
# Loads for the cost model, with LoCA only; each differs from a load above in one property.
ALONE = ("frozen", *LOCA)
OTHERS = (
    Layer(768, 1000, 64, 8),
    Layer(768, 1000, 16_384, 8),
    Layer(768, 100, 4096, 8),
    Layer(768, 100_000, 4096, 8),
    Layer(2048, 10_000, 4096, 16),
    Layer(2048, 10_000, 512, 16, "bfloat16"),
    Layer(4096, 10_000, 512, 16),
    Layer(4096, 150_000, 64, 64, "bfloat16"),
)
# Loads on both sides of the threshold below which entries of Z are sampled.
SAMPLED = (Layer(768, 1000, 4096, 8), Layer(4096, 150_000, 512, 64))
SAMPLINGS = ("materialised, sampled", "materialised, one product")
# Enough tokens for several of the smaller blocks.
BLOCKS = (Layer(768, 1000, 16_384, 8), Layer(4096, 150_000, 4096, 64))
BLOCK_BITS = (18, 20, 22, 24)
SEARCHES = (Layer(768, 1000, 4096, 8), Layer(4096, 150_000, 512, 64))
_TINY = (Layer(16, 20, 8, 2), Layer(16, 20, 8, 2, "bfloat16"))
_TINY_OTHERS = (Layer(16, 5, 8, 2),)

Built = tuple[Step, Mapping[str, Any]]
Building = Callable[[str, Layer, str], Built]


def check(session: Session) -> None:
    """Measure every load and choice, and record a trace of the first two loads."""
    tiny = session.tiny
    loads = _TINY if tiny else LAYERS
    for layer in loads:
        _compare(session, layer, RIVALS)
    _compare_choices(session)
    for layer in _TINY_OTHERS if tiny else OTHERS:
        _compare(session, layer, ALONE)
    # Traces come last, because the profiler may slow down what follows.
    for layer in loads[:2]:
        rivals = partial(_rivals, session.device, layer)
        name = f"layer-{layer.size}-{layer.dtype}"
        session.trace(name, lambda rivals=rivals: rivals()[0]["LoCA"]()[0])


def _compare(session: Session, layer: Layer, names: Sequence[str]) -> None:
    rivals = partial(_rivals, session.device, layer, names)
    compare(session, str(layer), rivals, judge=partial(judge_adapters, is_model=False))


def _compare_choices(session: Session) -> None:
    blocks = [f"2^{bits}" for bits in BLOCK_BITS]
    searches = ("coefficients", "locations", "swap", "reselect")
    choices: tuple[tuple[str, Building, Sequence[Layer], Sequence[str]], ...] = (
        ("entries of Z", _sampling_step, SAMPLED, SAMPLINGS),
        ("blocks of tokens", _block_step, BLOCKS, blocks),
        ("searches", _search_step, SEARCHES, searches),
    )
    for title, build, layers, names in choices:
        for layer in _TINY_OTHERS if session.tiny else layers:
            rivals = {name: partial(build, session.device, layer, name) for name in names}
            compare(session, f"{title}: {layer}", lambda r=rivals: (r, 0), judge=lambda *_: None)


def _sampling_step(device: str, layer: Layer, rival: str) -> Built:
    implementation, _, choice = rival.partition(", ")
    step, facts = _loca(device, layer, f"LoCA {implementation}")
    samples = choice == "sampled"
    return _with(linear_operator, "sampling_pays", lambda *_: samples, step), facts


def _block_step(device: str, layer: Layer, rival: str) -> Built:
    step, facts = _loca(device, layer, "LoCA implicit")
    name = "_BLOCK" if device == "cpu" else "_BLOCK_ON_DEVICE"
    return _with(kernels, name, 1 << int(rival.removeprefix("2^")), step), facts


def _loca(device: str, layer: Layer, rival: str) -> Built:
    rivals, _ = _rivals(device, layer, (rival,))
    return rivals[rival]()


def _with(module: Any, name: str, value: object, step: Step) -> Step:
    """A step during which an attribute of the library has another value."""

    def forced() -> None:
        before = getattr(module, name)
        setattr(module, name, value)
        try:
            step()
        finally:
            setattr(module, name, before)

    return forced


def _search_step(device: str, layer: Layer, search: str) -> Built:
    """A step of AdamW on the coefficients or the locations, or one that prunes and regrows."""
    torch.manual_seed(0)
    kind: Any = {"device": device, "dtype": getattr(torch, layer.dtype)}
    prunes_and_regrows = search in ("swap", "reselect")
    # The components of a prune-and-regrow search move after every second step.
    each = AlternatingSchedule(1, 1, None, recorded_steps=1)
    steps = (1, 10**9) if search == "locations" else (10**9, 1)
    schedule = each if prunes_and_regrows else AlternatingSchedule(*steps, None)
    model = LoCALinear(
        Single(layer.size).query,
        layer.components,
        zero_init=False,  # coefficients of zero give locations no gradient
        # The schedule stays in the measured phase.
        schedule=schedule,
        location_search=search if prunes_and_regrows else "central",
    ).to(**kind)
    optimizer = torch.optim.AdamW([model.spectrum.coefficients], lr=1e-4)
    follow(model, optimizer)
    spectrum: Any = model.spectrum
    if search == "locations":
        spectrum.search.phase = "locations"
        spectrum.steps_done = 1
    x = torch.randn(layer.tokens, layer.size, requires_grad=True, **kind)
    g = torch.randn(layer.tokens, layer.size, **kind)

    def step() -> None:
        x.grad = None
        optimizer.zero_grad()
        model(x).backward(g)
        optimizer.step()

    return step, facts_of(model)


def _rivals(
    device: str, layer: Layer, names: Sequence[str] = RIVALS
) -> tuple[dict[str, Build], int]:
    base = Single(layer.size).to(device, getattr(torch, layer.dtype))

    def build(rival: str) -> tuple[Any, dict[str, Any]]:
        torch.manual_seed(0)
        model = adapted(sharing_weights(base), rival, layer.components, layer.r).to(device)
        return layer_step(layer, model, device), facts_of(model)

    held = sum(p.numel() * p.element_size() for p in base.parameters())
    return {rival: partial(build, rival) for rival in names}, held


def facts_of(model: torch.nn.Module) -> dict[str, Any]:
    """Number and precision of the trained parameters."""
    parameters = trained(model)
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in parameters})
    return {"trained": sum(p.numel() for p in parameters), "in": ", ".join(dtypes)}

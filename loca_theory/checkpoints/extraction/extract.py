"""Conversion of a full fine-tune to the adapter with the smallest error, for PEFT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.change.task import Task
from loca_theory.checkpoints.extraction.extractor import Extractor
from loca_theory.checkpoints.extraction.layers import choose_layers
from loca_theory.checkpoints.extraction.outputs import check_requantise, read_inputs
from loca_theory.checkpoints.extraction.result import Extraction
from loca_theory.checkpoints.extraction.saved_modules import find_saved_modules
from loca_theory.checkpoints.extraction.serving import check_readable, check_serves
from loca_theory.checkpoints.sizes.size import DTYPES, AdapterSize, TotalSize
from loca_theory.checkpoints.source.open import Source, base_name, describe
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import chosen_runner
from loca_theory.sweeps.store import described
from loca_theory.transforms.devices import resolve_device

_LOOKS_INSIDE = {"cells": True, "ignore": False}


def extract(
    base: Source,
    tuned: Source,
    method: Literal["loca", "lora", "entries", "best"] = "loca",
    *,
    model: torch.nn.Module | None = None,
    rank: int | None = None,
    components: int | None = None,
    allocate: int | str | TotalSize | None = None,
    energy: float | None = None,
    floor: int = 0,
    cap: int | None = None,
    save_modules: str | Iterable[str] = (),
    serve: Literal["peft", "llama.cpp", "vllm"] | None = None,
    dtype: Literal["float32", "float16", "bfloat16"] = "float32",
    rounding: Literal["cells", "ignore"] = "cells",
    check: bool = False,
    inputs: Any = None,
    requantise: int | None = None,
    include: str | None = None,
    exclude: str | None = None,
    max_size: int | None = None,
    device: str = "auto",
    runner: Runner | None = None,
) -> Extraction:
    """Approximate each increment of a fine-tune by the best adapter of a method and size.

    The best adapter has the smallest squared error. Where a fine-tune is stored in few bits, such
    as bfloat16, its difference from the base is a rounded change; LoRA and LoCA are then fitted to
    the intervals that the change was in, the *rounding cells*, as far as entries that the fit has
    not seen come nearer to theirs. The adapter is made for the model that the fine-tune is
    loaded into: a module that was passed, or the class of transformers that ``config.json`` names.
    This model decides the names of the weights, and which of them are of linear layers. Without
    one, the names of the checkpoint do, and ``manifest["grid"]["unchecked"]`` says why.
    Embeddings are left out because an adapter of linear layers cannot represent them;
    ``save_modules`` stores them whole. If the fine-tune is an adapter already, it is resized: the
    result has its names, and the modules that it stores whole. LoRA is resized to LoRA from its
    factors alone, without any ΔW. Of experts in one parameter of a known model, LoRA has factors of
    each, of one rank, and LoCA components of the matrix with the rows of all. Convolutions can have
    LoRA only, and ``Conv1D`` no SHiRA.

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module.
        tuned: The fine-tuned checkpoint, in any of these forms, or the folder of an adapter.
        method: ``loca``: the largest DCT coefficients and their locations; ``lora``: the truncated
            singular value decomposition, split evenly between A and B; ``entries``: the largest
            entries, as SHiRA of PEFT; ``best``: for each matrix LoRA or LoCA, whichever has the
            smaller error, in two adapters.
        model: The model that the adapter is for, if neither checkpoint tells it. Its weights do
            not matter.
        rank: LoRA's rank r. For LoCA it sets the paper's budget: (p + q) r / 2 coefficients, each
            with a location that costs as much as the coefficient. SHiRA stores (p + q) r entries,
            as many as LoRA has numbers, and leaves out matrices that have fewer.
        components: Number of LoCA's coefficients per matrix, instead of a rank.
        allocate: Total of all matrices, instead of a size for each: a number of trainable numbers,
            such as 200000 or ``"200k"``, or bytes of the stored tensors, such as ``"4MB"``. It is
            split so that the adapter retains the most energy.
        energy: Fraction of the energy of all increments together. The adapter is the smallest one,
            in trainable numbers, that retains it, rounded to the stored type.
        floor: Smallest rank or number of coefficients that a matrix may be allocated.
        cap: Largest rank or number of coefficients that a matrix may be allocated.
        save_modules: Regular expressions. The modules of the fine-tune with a tensor whose name
            contains a match are stored whole, as PEFT's ``modules_to_save``, with those that a
            known model ties to them. They are not part of the total; ``saved_numbers`` counts them.
        serve: The software that will serve the adapter: ``peft``, ``llama.cpp`` or ``vllm``. What
            it cannot read is refused. vLLM knows one rank for all layers, so that every factor is
            stored with zeros up to the largest rank; a total is of the numbers without these zeros.
            It reads experts of DeepSeek and Qwen3-MoE, whose projections get keys of their own.
        dtype: Type of the stored numbers: ``float32``, ``float16`` or ``bfloat16``. Errors include
            the rounding to it.
        rounding: ``cells``, or ``ignore``: the best adapter for the stored difference, whatever it
            is stored in. Sizes are split by the stored difference in any case.
        check: Whether to load the adapter with PEFT into the model of the base, merge it, and
            measure its errors there; for a fine-tune in few bits, also how many entries a merge in
            as few bits gives back.
        inputs: With ``check``, inputs on which to compare the outputs of the adapter, of the base
            and of the fine-tune: the path of a file with one text per line, or of a safetensors or
            PyTorch file with tensors by the names of the model's arguments. In Python, these
            texts or tensors will do.
        requantise: With ``check``, 8 or 4: how much of the adapter's energy is left in a base of so
            many bits, if the sum is rounded to them again.
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
            total is too small, no matrix is left, or ``model`` is another model or has a weight in
            another shape; the model is not known, and ``check`` needs it; ``inputs`` cannot be
            read, or are given without ``check``.
        ResourceError: a file is damaged or cannot be read, there is not enough memory, or the
            errors in the loaded model are not those that were computed.

    Example:
        >>> from loca_theory.checkpoints import demo_pair
        >>> found = extract(*demo_pair(), "lora", allocate=6000)
        >>> len(found.matrices), found.error < found.uniform_error < 0.5
        (9, True)
    """
    patterns = _arguments.as_tuple(save_modules)
    total = TotalSize.parse(allocate)
    size = AdapterSize(method, rank, components, total, energy, floor, cap)
    find("dtype", dtype, DTYPES)
    looks_inside = find("rounding", rounding, _LOOKS_INSIDE)
    engine = "peft" if serve is None else serve
    check_serves(engine, size.forms, method)
    # vLLM knows one rank for all layers.
    has_one_rank = engine == "vllm"
    runner = chosen_runner(runner)
    selection = MatrixSelection(include, exclude, max_size).of_extraction()
    pair = open_pair(base, tuned, selection, model)
    if not check and (inputs is not None or requantise is not None):
        raise InvalidArgumentError(
            "inputs and requantise are for the check of the adapter; pass check=True as well"
        )
    check_requantise(requantise)
    inputs = read_inputs(inputs, base, tuned)
    if check and pair.base is not None and not pair.model.is_known:
        why = pair.model.unknown
        raise InvalidArgumentError(
            f"the adapter cannot be checked, because the model is not known ({why}); leave "
            "the check out, or pass the model in Python"
        )
    device = resolve_device(device)
    saved = find_saved_modules(pair, patterns)
    layers, skipped = choose_layers(pair, size, saved)
    check_readable(engine, saved.entries, layers, pair.model.type)
    if check and has_one_rank and any(layer.experts > 1 for layer in layers):
        raise InvalidArgumentError(
            "PEFT cannot check an adapter with keys for single experts; leave the check or "
            'serve="vllm" out'
        )
    task = Task({"": pair}, device, runner, skipped)
    extractor = Extractor(layers, task, size, dtype, saved, has_one_rank, looks_inside)
    rows, adapters = extractor.run(base_name(base))
    inside = {row.name for row in rows} | set(saved.tensors)
    grid = {
        "base": describe(base),
        "finetuned": describe(tuned),
        "method": method,
        "r": rank,
        "components": components,
        "allocate": total and str(total),
        "energy": energy,
        "floor": floor,
        "cap": cap,
        "pad": has_one_rank,
        "save_modules": list(patterns),
        **described(selection, "smallest_side", "experts"),
        "rounding": rounding,
        "model": pair.model.title if pair.base and pair.model.is_known else None,
        "unchecked": pair.unchecked,
        "vocabulary": saved.new_rows(pair),
        "changed_outside": pair.changed_outside(inside),
        "resized": pair.base is None,
    }
    extraction = Extraction(
        manifest=manifest(grid=grid, seed=None, device=device, dtype=dtype),
        matrices=tuple(rows),
        skipped=tuple(skipped),
        outputs=(),
        adapters=adapters,
        sources={"base": base, "finetuned": tuned},
    )
    if check:
        extraction = extraction.verify(model, inputs, requantise)
    if wrong := extraction.disagreements:
        msg = f"{len(wrong)} matrices have another error once PEFT has loaded the adapter: "
        msg += ", ".join(wrong[:3])
        raise ResourceError(msg + '; leave them out with exclude="..."')
    return extraction

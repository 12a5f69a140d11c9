"""Analysis of fine-tunes: how they changed every weight matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Literal

from loca_theory import _arguments
from loca_theory._lookup import find
from loca_theory.checkpoints.change.opening import open_fine_tunes
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.change.task import Pairs, Task
from loca_theory.checkpoints.form.layer import has_ambiguous_names, layers_of
from loca_theory.checkpoints.measure.cells import (
    IncrementCell,
    compare_all,
    compute_analysis,
    weight_spectra,
)
from loca_theory.checkpoints.measure.figure_data import figure_data, representative
from loca_theory.checkpoints.measure.settings import ANALYSED, Settings
from loca_theory.checkpoints.model.names import kind_of, middle_of_each_kind
from loca_theory.checkpoints.report.result import Analysis
from loca_theory.checkpoints.sizes.allocation import accounting_of, allocated_matrices, check_total
from loca_theory.checkpoints.sizes.size import TotalSize
from loca_theory.checkpoints.source.open import Source, describe, is_array
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import Accounting, Method
from loca_theory.expressivity.methods.registry import find_methods, is_recognisable, own_titles
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import Runner
from loca_theory.sweeps.manifest import manifest
from loca_theory.sweeps.runner import chosen_runner
from loca_theory.sweeps.store import described


def _to_shuffle(cells: Sequence[IncrementCell], group: str | None) -> list[IncrementCell]:
    """The middle one of each kind of a fine-tune of which no matrix is shuffled, to shuffle it."""
    kinds = {(cell.tuned, kind_of(cell.name, group)) for cell in cells if cell.has_control}
    without = [cell for cell in cells if (cell.tuned, kind_of(cell.name, group)) not in kinds]
    return [replace(cell, has_control=True) for cell in middle_of_each_kind(without, group)]


def analyze(
    base: Source,
    *tuned: Source,
    ranks: int | Iterable[int] = (8, 16, 32),
    methods: str | Method | Iterable[str | Method] = (),
    include: str | None = None,
    exclude: str | None = None,
    group: str | None = None,
    max_size: int | None = None,
    experts: Literal["each", "stacked"] = "each",
    epsilon: float = 0.001,
    accounting: Accounting | str | None = None,
    subspaces: int | None = None,
    allocate: int | str | TotalSize | None = None,
    bits: float | Iterable[float] = (),
    shuffle: Literal["representative", "all"] = "representative",
    seed: int = 0,
    device: str = "auto",
    printed: PrintedTest | None = None,
    runner: Runner | None = None,
) -> Analysis:
    """Analyse every weight increment ΔW = W′ − W₀ of one or several fine-tunes of a base.

    For each increment: is it normal, are its entries independent, in how few dimensions does it
    lie, and what is the error of each method? For every two fine-tunes: do their increments point
    the same way?

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module. Without
            ``tuned``: the folder of an adapter of PEFT, or ΔW itself, a 2-D array or tensor.
        tuned: The fine-tunes: checkpoints in any of these forms, or adapters of the base: their
            folders, or models of PEFT in memory with one active adapter, which is not merged.
        ranks: LoRA ranks that set the budgets. A rank whose budget exceeds a matrix is left out for
            that matrix.
        methods: Methods, or their names, in addition to those of
            ``loca_theory.checkpoints.measure.settings.ANALYSED``.
        include: Regular expression; only matrices whose name contains a match are analysed.
        exclude: Regular expression; matrices whose name contains a match are left out.
        group: Regular expression for the kinds by which matrices are summed up, where names do not
            tell them: the kind is the first group of its match in the name, or the whole match.
        max_size: Matrices with more entries are left out.
        experts: What the weights of several experts in one tensor are: ``each``, a matrix per
            expert; ``stacked``, one matrix with the rows of all.
        epsilon: Total variation that still counts as normal.
        accounting: What is charged to a budget: ``trainable`` with an ``allocate`` of trainable
            numbers, which are counted so; otherwise one that is chosen, or by default ``paper``.
        subspaces: Number K of leading singular vectors of each change to compare with those of the
            base's matrix, and between fine-tunes. Counts intruder dimensions, too: vectors of the
            fine-tune that resemble none of the base's 4K leading ones. Takes longer; None compares
            none.
        allocate: Total size of an adapter, to split among the layers of each fine-tune so that it
            retains the most energy: trainable numbers, or bytes such as ``"4MB"``.
        bits: Bits per entry, such as ``[0.5, 1, 2]``, at which coders of ΔW are compared, each with
            and without a cosine transform.
        shuffle: Of which matrices the methods are also applied to the entries in random order:
            ``representative``, the one in the middle of the layers that changed, of each kind;
            ``all``, which takes a third longer.
        seed: Root seed of the bootstrap, the shuffle and the random choices.
        device: Where the linear algebra runs: ``auto``, ``cpu`` or ``cuda[:N]``.
        printed: Settings of the test of normality as the paper prints it.
        runner: Runs the matrices, each as one point of a sweep with one thread. Its store holds the
            results of finished matrices, by the digest of what they were computed from. Workers
            open checkpoints by their paths; weights in memory are analysed in this process.

    Returns:
        The tables, for all matrices that could be read.

    Raises:
        InvalidArgumentError: a source is not of a supported kind, no matrix is left to analyse, or
            an array is not 2-D, not finite or constant.
        ResourceError: a file is damaged or cannot be read, or there is not enough memory.

    Example:
        >>> import numpy as np
        >>> found = analyze(np.random.default_rng(0).normal(size=(64, 48)), ranks=[4])
        >>> found.matrices[0].mp_distance < 0.1
        True
        >>> [error.method for error in found.errors]
        ['LoRA', 'random Fourier', 'FourierFT', 'Fourier pairs', 'Fourier', 'LoCA', 'entries']
    """
    from loca_theory.transforms.devices import resolve_device

    runner, total = chosen_runner(runner), TotalSize.parse(allocate)
    added = [method for method in find_methods(methods) if method not in ANALYSED]
    settings = Settings(
        ranks=_arguments.ranks(ranks),
        methods=(*ANALYSED, *added),
        seed=seed,
        epsilon=epsilon,
        accounting=accounting_of(accounting, total),
        device=resolve_device(device),
        printed=printed or PrintedTest(),
        subspaces=subspaces,
        group=group,
        bits=_arguments.as_tuple(bits),
    )
    find("shuffle", shuffle, dict.fromkeys(("representative", "all")))
    selection = MatrixSelection(include, exclude, max_size, experts=experts)
    pairs = open_fine_tunes(base, tuned, selection)
    layers = {label: layers_of(pair) for label, pair in pairs.items()}
    adapted: Pairs = {}
    if total is not None:
        adapted = {label: pair.of_extraction() for label, pair in pairs.items()}
        check_total(chain(*map(layers_of, adapted.values())), total)
    if not all(map(is_recognisable, settings.methods)):
        # A method that has no definition as text cannot be sent to a worker.
        runner = replace(runner, jobs=1)
    skipped = [replace(row, tuned=label) for label, pair in pairs.items() for row in pair.skipped]
    task = Task(pairs, settings.device, runner, skipped)
    cells = [
        IncrementCell(layer.name, layer, settings, shuffle == "all", tuned=(label,))
        for label, of_pair in layers.items()
        for layer in of_pair
    ]
    chosen = {(cell.tuned, cell.name): cell for cell in (*cells, *_to_shuffle(cells, group))}
    results = task.run(list(chosen.values()), compute_analysis)
    # The matrix in the middle layer of a kind may not have changed: another one takes its match.
    retried = _to_shuffle([cell for cell, _ in results], group)
    retries = task.run(retried, compute_analysis, is_shown=False)
    by_cell = {(cell.tuned, cell.name): result for cell, result in (*results, *retries)}
    analyses = list(by_cell.values())
    if is_array(base) and not analyses:
        raise InvalidArgumentError(
            f"{skipped[0].reason}; pass a matrix with finite entries that differ"
        )
    matrices, shown = [analysis.matrix for analysis in analyses], representative(analyses)
    weights = weight_spectra(task, [analysis.matrix for analysis in shown])
    changed = {matrix.tuned for matrix in matrices}
    # What has no adapter is known from the analysis itself.
    split = replace(task, pairs=adapted, skipped=[])
    allocation = [
        row
        for label, pair in adapted.items()
        if label in changed and total is not None
        for row in allocated_matrices(split, label, layers_of(pair), total)
    ]
    return Analysis(
        manifest=manifest(
            grid={
                "base": describe(base),
                "finetuned": [describe(source) for source in tuned],
                "labels": list(pairs),
                "prefixes": {label: pair.prefix for label, pair in pairs.items()},
                "ambiguous_names": any(
                    has_ambiguous_names(pair, layers[label]) for label, pair in pairs.items()
                ),
                "identical": [
                    label
                    for label, pair in pairs.items()
                    if label not in changed and pair.is_identical()
                ],
                "unchecked": next((pair.unchecked for pair in pairs.values()), None),
                "coverage": {
                    label: pair.coverage and asdict(pair.coverage) for label, pair in pairs.items()
                },
                **described(selection, "smallest_side"),
                "allocate": total and str(total),
                "shuffle": shuffle,
                **described(settings),
                "methods": [method.name for method in settings.methods],
                "device": settings.device,
                **own_titles(settings.methods),
            },
            seed=seed,
            device=settings.device,
            dtype="float32",
        ),
        matrices=tuple(matrices),
        errors=tuple(error for analysis in analyses for error in analysis.errors),
        spectra=tuple(analysis.spectrum for analysis in analyses),
        figure_data=tuple(figure_data(shown, weights)),
        allocation=tuple(allocation),
        comparisons=compare_all(task, matrices, subspaces),
        bits=tuple(error for analysis in analyses for error in analysis.coded),
        skipped=tuple(skipped),
    )

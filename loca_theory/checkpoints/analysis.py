"""Analysis of a fine-tune: how it changed every weight matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

from loca_theory import _arguments
from loca_theory._lookup import member
from loca_theory.checkpoints.figure_data import figure_data
from loca_theory.checkpoints.matrix import ANALYSED, MatrixAnalysis, Settings, analyse_matrix
from loca_theory.checkpoints.pairs import not_finite, open_pair
from loca_theory.checkpoints.recommendation import SHOWN, adapter_config, verdict
from loca_theory.checkpoints.rows import FigureData, Matrix, MatrixError, Skipped
from loca_theory.checkpoints.selection import Selection
from loca_theory.checkpoints.sources import Source, describe
from loca_theory.checkpoints.state_dicts import is_array
from loca_theory.checkpoints.summary import Summary, summarise
from loca_theory.errors import InvalidArgumentError, ResourceError
from loca_theory.expressivity import Accounting, Method, find_methods
from loca_theory.expressivity.methods import METHODS, definition, own_titles
from loca_theory.increments import PrintedTest
from loca_theory.sweeps import (
    DEFAULT_RUNNER,
    Point,
    Result,
    ResultStore,
    Runner,
    code_version,
    manifest,
    rows,
)

if TYPE_CHECKING:
    import pandas as pd
    import torch

_EXPERIMENT = "increments"
_OVERVIEW = ("name", "shape", "sigma", "tv", "tv_p_value", "outlier_mass", "spikes")
_NESTED = ("r", "method", "error", "iid_error", "shuffled_error", "spectral_error")


@dataclass(frozen=True, repr=False)
class Analysis(Result):
    """Result of the analysis of a fine-tune.

    Attributes:
        matrices: Statistics of every increment that could be analysed.
        errors: Relative error of each method on each of these increments.
        figure_data: Histograms and spectra of a few increments, for figures.
        skipped: Tensors that were left out.
    """

    matrices: tuple[Matrix, ...] = rows(Matrix)
    errors: tuple[MatrixError, ...] = rows(MatrixError)
    figure_data: tuple[FigureData, ...] = rows(FigureData)
    skipped: tuple[Skipped, ...] = rows(Skipped)
    command: ClassVar[str] = "analyze"

    @property
    def ranks(self) -> tuple[int, ...]:
        """LoRA ranks that set the budgets."""
        return tuple(self.manifest["grid"]["ranks"])

    @cached_property
    def summary(self) -> Summary:
        """Totals over all matrices, by kind and by layer."""
        return summarise(self.matrices, self.errors, self.ranks)

    @property
    def verdict(self) -> str:
        """One paragraph: are the increments normal and independent, and which adapter is best?"""
        return verdict(self.summary.all, self.manifest["grid"]["epsilon"])

    @property
    def config(self) -> str:
        """Source of a PEFT configuration of the best adapter; "" if there are no errors."""
        fitting = {error.name for error in self.errors}
        matrices = [one for one in self.matrices if one.name in fitting]
        return adapter_config(matrices, self.summary.all)

    def to_json(self) -> dict[str, Any]:
        """Plain data: one row per matrix with its errors, skipped tensors, totals, manifest."""
        errors: dict[str, list[dict[str, Any]]] = {one.name: [] for one in self.matrices}
        for error in self.errors:
            errors[error.name].append({key: getattr(error, key) for key in _NESTED})
        return {
            "rows": [{**asdict(one), "errors": errors[one.name]} for one in self.matrices],
            "skipped": [{"name": one.name, "reason": one.reason} for one in self.skipped],
            "summary": {
                **self.summary.to_json(), "verdict": self.verdict, "config": self.config
            },
            "manifest": self.manifest,
        }  # fmt: skip

    def overview(self) -> pd.DataFrame:
        """One row per matrix: its main statistics, and some errors at the first rank.

        The errors are those of LoRA, LoCA, FourierFT, selection of entries, and the methods that
        the user named.
        """
        frame, errors = self.to_frame(), self.to_frame("errors")
        first = self.summary.all.errors[0].r if self.errors else None
        usual = [method.name for method in ANALYSED]
        is_shown = errors["method"].isin(SHOWN) | ~errors["method"].isin(usual)
        at = errors[(errors["r"] == first) & is_shown]
        wide = at.pivot_table(index="name", columns="method", values="error", sort=False)
        wide = wide.add_suffix(f", r = {first}")
        return frame[list(_OVERVIEW)].merge(wide, left_on="name", right_index=True, how="left")

    def _repr_html_(self) -> str:
        """Verdict and overview; for a single matrix, all its statistics in one column."""
        if len(self.matrices) == 1:
            errors = {f"{e.method}, r = {e.r}": e.error for e in self.errors}
            frame = self.to_frame().assign(**errors)
            table = frame.T.to_html(header=False, border=0)
        else:
            table = self.overview().to_html(
                max_rows=20, show_dimensions=True, border=0, index=False
            )
        return f"<p>{escape(self.verdict)}</p>{table}"


def version() -> str:
    """Version of the code and libraries that a stored analysis depends on."""
    return code_version(analyse_matrix)


def analyze(
    base: Source,
    tuned: Source | None = None,
    *,
    ranks: int | Iterable[int] = (8, 16, 32),
    methods: str | Method | Iterable[str | Method] = (),
    include: str | None = None,
    exclude: str | None = None,
    max_size: int | None = None,
    epsilon: float = 0.001,
    accounting: Accounting | str = Accounting.PAPER,
    seed: int = 0,
    device: str = "auto",
    printed: PrintedTest | None = None,
    runner: Runner = DEFAULT_RUNNER,
) -> Analysis:
    """Analyse every weight increment ΔW = W′ − W of a fine-tune, one at a time.

    For each increment: is it normal, are its entries independent, and what is the error of each
    method?

    Args:
        base: The base: a path or ``hub:org/name[@revision]``, a state dict or a module. Without
            ``tuned``: a folder with a LoRA adapter of PEFT, or ΔW itself, a 2-D array or tensor.
        tuned: The fine-tuned checkpoint, in any of these forms, or a LoRA adapter of the base.
        ranks: LoRA ranks that set the budgets. A rank whose budget exceeds a matrix is left out for
            that matrix.
        methods: Methods, or their names, in addition to those of
            :data:`~loca_theory.checkpoints.ANALYSED`.
        include: Regular expression; only matrices whose name contains a match are analysed.
        exclude: Regular expression; matrices whose name contains a match are left out.
        max_size: Matrices with more entries are left out.
        epsilon: Total variation that still counts as normal.
        accounting: What is charged to a budget.
        seed: Root seed of the bootstrap, the shuffle and the random choices.
        device: Where the linear algebra runs: ``auto``, ``cpu`` or ``cuda[:N]``.
        printed: Settings of the test of normality as the paper prints it.
        runner: Its store holds the results of finished matrices, by the digest of their entries,
            and its progress callback counts matrices. Its workers are not used.

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
        ['R', 'F1', 'FourierFT', 'F2', 'F3', 'D', 'S']
    """
    from loca_theory.transforms import resolve_device

    runner = _arguments.instance("runner", runner, Runner)
    settings = Settings(
        ranks=_arguments.ranks(ranks),
        methods=_beside_the_usual(methods),
        seed=seed,
        epsilon=epsilon,
        accounting=member(Accounting, "accounting", accounting),
        device=resolve_device(device),
        printed=printed or PrintedTest(),
    )
    store = runner.open_store(analyse_matrix)
    pair = open_pair(base, tuned, Selection(include, exclude, max_size))
    skipped = list(pair.skipped)
    analyses: dict[str, MatrixAnalysis] = {}
    for done, name in enumerate(pair.names):
        if runner.progress:
            runner.progress(done, len(pair.names))
        try:
            increment = pair.increment(name)
        except ResourceError as error:
            skipped.append(Skipped(name, str(error), damaged=True))
            continue
        if obstacle := _obstacle(name, increment):
            skipped.append(obstacle)
        else:
            analyses[name] = _stored_or_new(name, increment, settings, pair.dtype(name), store)
    if runner.progress:
        runner.progress(len(pair.names), len(pair.names))
    if is_array(base) and not analyses:
        msg = f"{skipped[0].reason}; pass a matrix with finite entries that differ"
        raise InvalidArgumentError(msg)
    return Analysis(
        manifest=manifest(
            grid={
                "base": describe(base), "finetuned": None if tuned is None else describe(tuned),
                "prefix": pair.prefix, "include": include, "exclude": exclude,
                "max_size": max_size, **settings.describe(),
                **({"titles": titles} if (titles := own_titles(settings.methods)) else {}),
            },
            seed=seed,
            device=settings.device,
            dtype="float32",
        ),
        matrices=tuple(one.matrix for one in analyses.values()),
        errors=tuple(error for one in analyses.values() for error in one.errors),
        figure_data=figure_data(analyses, pair),
        skipped=tuple(skipped),
    )  # fmt: skip


def _beside_the_usual(methods: str | Method | Iterable[str | Method]) -> tuple[Method, ...]:
    return (*ANALYSED, *(one for one in find_methods(methods) if one not in ANALYSED))


def _obstacle(name: str, increment: torch.Tensor) -> Skipped | None:
    low, high = (float(value) for value in increment.aminmax())
    if low == high == 0:
        return Skipped(name, "unchanged: every entry of the increment is 0")
    if low == high:
        return Skipped(name, "every entry of the increment is the same")
    reason = not_finite(increment)
    return None if reason is None else Skipped(name, reason, damaged=True)


def _stored_or_new(
    name: str, increment: torch.Tensor, settings: Settings, dtype: str, store: ResultStore | None
) -> MatrixAnalysis:
    own = [definition(method) for method in settings.methods if method.name not in METHODS]
    if store is None or None in own:
        return analyse_matrix(name, increment, settings, dtype=dtype, consume=True)
    digest = hashlib.blake2b(increment.contiguous().numpy().data, digest_size=16).hexdigest()
    # The device is not part of the key: NumPy draws all random numbers, so results on different
    # devices differ only by rounding.
    asked = {**replace(settings, device="cpu").describe(), **({"own": own} if own else {})}
    labels = {"name": name, "shape": list(increment.shape), "dtype": dtype, "entries": digest}
    point = Point(_EXPERIMENT, {**labels, **asked})
    found = store.load(point)
    if found is None:
        new = analyse_matrix(name, increment, settings, dtype=dtype, consume=True)
        found = asdict(new)
        store.save(point, found)
        return new
    return MatrixAnalysis.from_json(found)

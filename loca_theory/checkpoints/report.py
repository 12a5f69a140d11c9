"""The report on a pair of checkpoints: every matrix, totals, what was left out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from loca_theory.checkpoints.matrix import (
    CURVES,
    FAR_FROM_LAW,
    STATISTICS,
    MatrixAnalysis,
    Settings,
    analyse_matrix,
)
from loca_theory.checkpoints.names import kind_of, layer_of
from loca_theory.checkpoints.pairs import CheckpointPair, Skipped, not_finite
from loca_theory.errors import ResourceError
from loca_theory.sweeps import DEFAULT_RUNNER, Point, ResultStore, Runner, code_version

if TYPE_CHECKING:
    import torch

Row = dict[str, Any]

COLUMNS = (
    "name", "shape", "dtype", "kind", "layer", *STATISTICS, "note",
)  # fmt: skip
_EXPERIMENT = "increments"


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        rows: One a matrix, in the order of the checkpoint, with its ``errors``.
        skipped: What was not analysed.
        analyses: The details behind the rows, by name, for figures.
    """

    rows: list[Row]
    skipped: list[Skipped]
    analyses: dict[str, MatrixAnalysis]

    @property
    def is_complete(self) -> bool:
        """Whether nothing had to be left out because a file is damaged."""
        return not any(one.damaged for one in self.skipped)

    def errors(self) -> list[Row]:
        """One row a matrix, rank and curve."""
        labels = ("name", "kind", "layer", "energy")
        return [
            {**{label: row[label] for label in labels}, **error}
            for row in self.rows
            for error in row["errors"]
        ]


def version() -> str:
    """Version of the code and libraries that a stored analysis depends on."""
    return code_version(analyse_matrix)


def analyse_pair(
    pair: CheckpointPair, settings: Settings, runner: Runner = DEFAULT_RUNNER
) -> Report:
    """Analyse every matrix of a pair, one at a time and in this process.

    Args:
        pair: The opened checkpoints.
        settings: What to ask of each.
        runner: Its store keeps finished matrices, under the digest of their entries, and its
            progress counts them; it has no use for workers.
    """
    rows: list[Row] = []
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
        entry = pair.tuned.entries[name]
        labels: Row = {
            "name": name,
            "shape": list(increment.shape),
            "dtype": entry.dtype,
            "kind": kind_of(name),
            "layer": layer_of(name),
        }
        analysis: MatrixAnalysis | None = None
        obstacle = _obstacle(name, increment)
        if obstacle is None:
            analysis = _stored_or_new(name, increment, settings, runner.store)
        else:
            skipped.append(obstacle)
            if obstacle.damaged:
                nothing = dict.fromkeys(STATISTICS)
                rows.append({**labels, **nothing, "note": obstacle.reason, "errors": []})
        if analysis is None:
            continue
        analyses[name] = analysis
        note = "; ".join(analysis.notes)
        rows.append({**labels, **analysis.statistics, "note": note, "errors": analysis.errors})
    if runner.progress:
        runner.progress(len(pair.names), len(pair.names))
    return Report(rows, skipped, analyses)


def _obstacle(name: str, increment: torch.Tensor) -> Skipped | None:
    low, high = (float(value) for value in increment.aminmax())
    if low == high == 0:
        return Skipped(name, "unchanged: every entry of the increment is 0")
    if low == high:
        return Skipped(name, "every entry of the increment is the same")
    reason = not_finite(increment)
    return None if reason is None else Skipped(name, reason, damaged=True)


def _stored_or_new(
    name: str, increment: torch.Tensor, settings: Settings, store: ResultStore | None
) -> MatrixAnalysis:
    if store is None:
        return analyse_matrix(name, increment, settings, consume=True)
    digest = hashlib.blake2b(increment.contiguous().numpy().data, digest_size=16).hexdigest()
    # Every random number comes from NumPy: devices differ by rounding alone.
    plain = replace(settings, device="cpu")
    point = Point(
        _EXPERIMENT,
        {"name": name, "shape": list(increment.shape), "entries": digest, **plain.describe()},
    )
    found = store.load(point)
    if found is None:
        found = analyse_matrix(name, increment, settings, consume=True).to_json()
        store.save(point, found)
    return MatrixAnalysis.from_json(found)


def summarise(rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> Row:
    """Totals over all matrices, by kind and by layer.

    The mean error of a method is weighted by energy: what it leaves of the whole fine-tune. A total
    energy is None where one of its terms does not fit float64.

    Args:
        rows: Rows of a :class:`Report`.
        ranks: Ranks to summarise.
    """
    good = [row for row in rows if row["sigma"] is not None]
    kinds = dict.fromkeys(row["kind"] for row in good)
    layers = sorted({row["layer"] for row in good if row["layer"] is not None})
    return {
        "all": _totals(good, ranks),
        "by_kind": {
            kind: _totals([row for row in good if row["kind"] == kind], ranks) for kind in kinds
        },
        "by_layer": {
            str(layer): _totals([row for row in good if row["layer"] == layer], ranks)
            for layer in layers
        },
    }


def _totals(rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> Row:
    if not rows:
        return {"matrices": 0, "errors": []}
    medians = {
        f"median_{key}": _median(row[key] for row in rows)
        for key in ("tv", "outlier_mass", "mp_distance", "spikes", "stable_rank", "zero_fraction")
    }
    return {
        "matrices": len(rows),
        "energy": _total([row["energy"] for row in rows]),
        "not_normal": sum(row["tv_p_value"] <= 0.05 for row in rows),
        "not_normal_as_printed": sum(
            row["tv_p_value_as_printed"] is not None and row["tv_p_value_as_printed"] <= 0.05
            for row in rows
        ),
        "follow_mp": sum(
            row["mp_distance"] is not None and row["mp_distance"] <= FAR_FROM_LAW for row in rows
        ),
        "with_spikes": sum(row["spikes"] > 0 for row in rows),
        **medians,
        "errors": list(_mean_errors(rows, ranks)),
    }


def _median(values: Iterable[float | None]) -> float | None:
    """Of the values that are there."""
    found = [value for value in values if value is not None]
    return float(np.median(found)) if found else None


def _total(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(sum(found)) if len(found) == len(values) else None


def _weights(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Energies as parts of the largest: the energies themselves may not fit float64."""
    sizes = [math.hypot(row["sigma"], row["mean"]) for row in rows]
    largest = max(sizes)
    return [
        math.prod(row["shape"]) * (size / largest) ** 2
        for row, size in zip(rows, sizes, strict=True)
    ]


def _mean_errors(rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> Iterator[Row]:
    weights = _weights(rows)
    for r in ranks:
        for curve in CURVES:
            found = [
                (weight, error)
                for row, weight in zip(rows, weights, strict=True)
                for error in row["errors"]
                if (error["r"], error["curve"]) == (r, curve)
            ]
            if found:
                total = sum(weight for weight, _ in found)
                means = {
                    key: float(sum(weight * error[key] for weight, error in found) / total)
                    for key in ("error", "iid_error", "shuffled_error")
                }
                best = sum(_is_best(row, r, curve) for row in rows)
                yield {"r": r, "curve": curve, **means, "matrices": len(found), "best_on": best}


def _is_best(row: Mapping[str, Any], r: int, curve: str) -> bool:
    mine = {error["curve"]: error["error"] for error in row["errors"] if error["r"] == r}
    return curve in mine and mine[curve] == min(mine.values())

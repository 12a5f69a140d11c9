"""The tables of a study: losses, crossings, power."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loca_theory.dependence.crossings import Crossing, Gap, find_crossings
from loca_theory.dependence.design import Design
from loca_theory.dependence.detection import STATISTICS, upper_critical_value
from loca_theory.dependence.draws import SIMULATED, Blocks
from loca_theory.dependence.null_law import low_frequency_critical_value
from loca_theory.dependence.predictions import Prediction
from loca_theory.dependence.protocols import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.expressivity import exact_error

Row = dict[str, Any]
Cell = tuple[str, float]

ROW_COLUMNS = (
    "structure", "parameter", "value", "protocol", "K", "p", "q", "r", "method", "error",
    "standard_error", "draws", "closed_form",
)  # fmt: skip


def loss_rows(
    study: Design, name: str, blocks: dict[Cell, Blocks], predictions: Sequence[Prediction]
) -> list[Row]:
    """Errors of every curve at every value, rank and protocol of one structure.

    Args:
        study: The design of the study.
        name: The structure.
        blocks: Its draws.
        predictions: Closed forms at each rank.
    """
    rows = []
    for value in study.grid(name):
        found = {curve: blocks[name, value].losses(curve) for curve in SIMULATED}
        for protocol in study.protocols:
            same = protocol is Protocol.SAME_DRAW
            simulated = SIMULATED if same else ("R",)
            # Random places keep their share of whatever energy there is.
            fixed = ("U",) if same else ("D", "M1", "M2", "U")
            for i, budget in enumerate(study.budgets):
                cells: list[tuple[str, float, float, int | None, float | None]] = [
                    (
                        curve,
                        float(found[curve][0][i]),
                        float(found[curve][1][i]),
                        study.draws,
                        predictions[i].error(name, curve, value),
                    )
                    for curve in simulated
                ]
                for curve in fixed:
                    error = exact_error(curve, budget)
                    cells.append((curve, error, 0.0, None, error))
                rows += [
                    {
                        **_labels(name, protocol),
                        "value": value,
                        "K": study.p if study.p == study.q else None,
                        "p": study.p,
                        "q": study.q,
                        "r": budget.r,
                        "method": curve,
                        "error": error,
                        "standard_error": standard_error,
                        "draws": draws,
                        "closed_form": closed_form,
                    }
                    for curve, error, standard_error, draws, closed_form in cells
                ]
    return rows


def _labels(name: str, protocol: Protocol) -> Row:
    return {
        "structure": name,
        "protocol": protocol.value,
        "parameter": STRUCTURES[name].parameter,
    }


def crossing_rows(
    study: Design,
    blocks: Mapping[Cell, Blocks],
    predictions: Sequence[Prediction],
    more: Callable[[Sequence[Cell]], Mapping[Cell, Blocks]],
) -> list[Row]:
    """Where R's error passes below D's, for every structure, protocol and rank.

    Args:
        study: The design of the study.
        blocks: Its draws at the values of the grids.
        predictions: Closed forms at each rank.
        more: Makes the draws at other values.
    """
    known = dict(blocks)
    searches = [
        (name, protocol, i)
        for name in study.structures
        for protocol in study.protocols
        for i in range(len(study.ranks))
    ]

    def gap(search: int, value: float) -> Gap:
        name, protocol, i = searches[search]
        block = known[name, value]
        if protocol is Protocol.SAME_DRAW:
            mean, error = block.gap()
            return float(mean[i]), float(error[i])
        mean, error = block.losses("R")
        return float(mean[i]) - exact_error("D", study.budgets[i]), float(error[i])

    def gaps(wanted: Sequence[tuple[int, float]]) -> list[Gap]:
        cells = dict.fromkeys((searches[search][0], value) for search, value in wanted)
        new = [cell for cell in cells if cell not in known]
        known.update(more(new))
        return [gap(search, value) for search, value in wanted]

    grids = [
        (grid := study.grid(name), [gap(search, value) for value in grid])
        for search, (name, _, _) in enumerate(searches)
    ]
    return [
        _crossing_row(study, name, protocol, predictions[i], crossing, found)
        for (name, protocol, i), crossing, (_, found) in zip(
            searches, find_crossings(grids, gaps), grids, strict=True
        )
    ]


def _crossing_row(
    study: Design,
    name: str,
    protocol: Protocol,
    prediction: Prediction,
    crossing: Crossing,
    gaps: Sequence[Gap],
) -> Row:
    low, high = study.grid(name)[0], study.grid(name)[-1]
    return {
        **_labels(name, protocol),
        "r": prediction.budget.r,
        "crossing": crossing.crossing,
        "low": crossing.low,
        "high": crossing.high,
        "closed_form": prediction.crossing(name, protocol, low, high),
        "finding": _finding(crossing, gaps),
        "searched_from": low,
        "searched_to": high,
    }


def detection_rows(
    study: Design,
    blocks: Mapping[Cell, Blocks],
    nulls: Mapping[bool, Mapping[str, NDArray[np.float64]]],
) -> list[Row]:
    """Power of every statistic, and first its law under independence.

    Args:
        study: The design of the study.
        blocks: Its draws at the values of :meth:`Design.detection_values`.
        nulls: Draws of the statistics under independence, as they are and centred.
    """
    rows = []
    for is_centred in (False, True):
        null = nulls[is_centred]
        critical = {
            name: upper_critical_value(values, study.level) for name, values in null.items()
        }
        critical["low-frequency"] = low_frequency_critical_value(
            study.p, study.q, study.level, is_centred=is_centred
        )
        for statistic in STATISTICS:
            bound = critical[statistic]
            if statistic in null:
                labels = {"structure": "independent", "parameter": None, "value": None}
                rows.append(_power(study, labels, statistic, null[statistic], bound, is_centred))
            for name in study.structures:
                for value in study.detection_values(name):
                    observed = blocks[name, value].statistic(statistic, is_centred=is_centred)
                    parameter = STRUCTURES[name].parameter
                    labels = {"structure": name, "parameter": parameter, "value": value}
                    rows.append(_power(study, labels, statistic, observed, bound, is_centred))
    return rows


def _power(
    study: Design,
    labels: Row,
    statistic: str,
    observed: NDArray[np.float64],
    bound: float,
    is_centred: bool,
) -> Row:
    return {
        **labels,
        "statistic": statistic,
        "centred": is_centred,
        "mean": float(observed.mean()),
        "sd": float(observed.std(ddof=1)),
        "at_zero": float((observed == 0).mean()),
        "critical_value": bound,
        "level": study.level,
        "power": float((observed > bound).mean()),
        "draws": len(observed),
    }


def _finding(crossing: Crossing, gaps: Sequence[Gap]) -> str:
    """Who wins where: what stands in place of a crossing that is not there."""
    if crossing.crossing is not None:
        return "crossing"
    if all(mean > 0 for mean, _ in gaps):
        return "D throughout"
    return "R throughout" if all(mean <= 0 for mean, _ in gaps) else "R first"

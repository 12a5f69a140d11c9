"""From the numbers to a paragraph and an adapter configuration to paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from loca_theory.checkpoints.names import module_of

Row = Mapping[str, Any]

ADAPTERS = {"R": "LoRA", "D": "LoCA (best DCT coefficients)", "FourierFT": "FourierFT"}
"""Curves that an adapter can be, and its name. S, F2 and F3 have no adapter."""

# Shuffling brings the independent value back if it does so to this part of the difference.
_BACK = 0.1
# A smaller part of the energy is no difference in practice, nor beyond small matrices' spread.
_NOTICEABLE = 0.03


def verdict(summary: Mapping[str, Any], ranks: Sequence[int], epsilon: float) -> str:
    """One paragraph: are the increments normal, are they independent, which adapter keeps most?

    Args:
        summary: From :func:`~loca_theory.checkpoints.summarise`.
        ranks: The ranks of the analysis.
        epsilon: The total variation that still counted as normal.
    """
    total = summary["all"]
    count = total["matrices"]
    if not count:
        return "No matrix could be analysed."
    normal = count - total["not_normal"]
    parts = [_normality(normal, count, epsilon, total["median_tv"])]
    parts.append(_spectrum(total))
    errors = {(error["r"], error["curve"]): error for error in total["errors"]}
    fitting = [r for r in ranks if (r, "R") in errors]
    if not fitting:
        return " ".join(parts)
    r = fitting[0]
    parts.append(_dependence(errors[r, "R"]))
    parts += [_winner(errors, r) for r in fitting]
    parts.append("(What is kept is the best each could do; LoCA's is that of perfect locations.)")
    return " ".join(part for part in parts if part)


def _winner(errors: Mapping[tuple[int, str], Row], r: int) -> str:
    kept = {curve: 1 - errors[r, curve]["error"] for curve in ADAPTERS}
    ordered = sorted(kept, key=lambda curve: -kept[curve])
    others = " and ".join(f"{ADAPTERS[curve]} {kept[curve]:.0%}" for curve in ordered[1:])
    best = ordered[0]
    return f"At the budget of r = {r} {ADAPTERS[best]} keeps {kept[best]:.0%} of it, {others}."


def _spectrum(total: Mapping[str, Any]) -> str:
    """Does the Marchenko–Pastur law hold?"""
    count, follow = total["matrices"], total["follow_mp"]
    share = f"{total['median_outlier_mass']:.0%}"
    # A few large eigenvalues hardly move the distance: the bulk may follow the law, and most of
    # the energy be elsewhere.
    text = f"In {follow} of {count} the bulk of the spectrum is close to the Marchenko–Pastur law "
    text += "of independent entries"
    distance = total["median_mp_distance"]
    details = [] if distance is None else [f"median distance {distance:.2f}"]
    if follow < count:
        details.append(f"{share} of the energy lies outside the law's support in the median")
    text += f" ({'; '.join(details)})" if details else ""
    if follow and total["with_spikes"]:
        text += f"; {total['with_spikes']} of {count} have eigenvalues above it, with {share} of "
        text += "the energy in the median"
    return f"{text}."


def _normality(normal: int, count: int, epsilon: float, distance: float) -> str:
    text = f"{normal} of {count} increments are within a total variation of {epsilon:g} of a "
    return f"{text}normal law as far as the test can tell (median distance {distance:.3f})."


def _dependence(error: Row) -> str:
    gap = error["iid_error"] - error["error"]
    left = error["iid_error"] - error["shuffled_error"]
    if abs(gap) < 0.01:
        return "Low rank keeps what it would keep of independent entries."
    if abs(left) <= _BACK * abs(gap):
        return (
            f"Rank truncation leaves {error['error']:.0%} where independent entries would leave "
            f"{error['iid_error']:.0%}; shuffling the entries brings that back "
            f"({error['shuffled_error']:.0%}), so it is their dependence, not their distribution."
        )
    return (
        f"Rank truncation leaves {error['error']:.0%} where independent entries would leave "
        f"{error['iid_error']:.0%}, and {error['shuffled_error']:.0%} of the shuffled entries: "
        "dependence and distribution both have a part."
    )


def adapter_config(rows: Sequence[Row], summary: Mapping[str, Any], ranks: Sequence[int]) -> str:
    """Python source of a PEFT configuration for the adapter that keeps most, ready to paste.

    Args:
        rows: Rows of the report.
        summary: Their summary.
        ranks: The ranks of the analysis; the smallest sets the budget.
    """
    errors = {(error["r"], error["curve"]): error["error"] for error in summary["all"]["errors"]}
    r = next((rank for rank in ranks if (rank, "R") in errors), None)
    if r is None:
        return ""
    mine = [row for row in rows if row["errors"]]
    layers = [row for row in mine if row["kind"] != "embedding"] or mine
    targets = sorted({module_of(row["name"]) for row in layers})
    best = min(ADAPTERS, key=lambda curve: errors[r, curve])
    # Of those with one number for all modules: what the smallest of them was given.
    p, q = min((row["shape"] for row in layers), key=sum)
    match best:
        case "R":
            module, config = "peft", f"LoraConfig(r={r}, lora_alpha={2 * r}"
        case "D":
            module, config = "loca_theory.adapters", f"LoCAConfig(n_frequency={(p + q) * r // 2}"
        case _:
            module, config = "peft", f"FourierFTConfig(n_frequency={(p + q) * r}"
    name = config.partition("(")[0]
    return f"from {module} import {name}\n\nconfig = {config}, target_modules={targets})"

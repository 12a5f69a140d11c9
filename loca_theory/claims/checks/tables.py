"""Statements about the paper's own tables, checked against the printed numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from loca_theory.claims.measurement import Estimate, Measurement, Setting

_COLA = 0
# CoLA, MNLI, MRPC, QNLI, QQP, RTE, SST-2, STS-B and the printed mean, table glue_results.
_GLUE = {
    "base": {
        "FT": (63.6, 87.6, 90.2, 92.8, 91.9, 78.7, 94.8, 91.2, 86.4),
        "BitFit": (62.0, 84.7, 92.7, 91.8, 84.0, 81.5, 93.7, 90.8, 85.2),
        "Adapter-D": (62.6, 87.3, 88.4, 93.0, 90.6, 75.9, 94.7, 90.3, 85.4),
        "LoRA": (62.8, 86.6, 89.7, 93.3, 90.8, 79.3, 94.9, 91.4, 86.1),
        "AdaLoRA": (63.0, 86.8, 90.2, 93.4, 90.9, 80.4, 94.6, 90.9, 86.3),
        "DoRA": (63.5, 87.0, 90.2, 93.1, 91.4, 78.6, 95.2, 91.5, 86.3),
        "VeRA": (65.6, 85.1, 89.5, 91.8, 89.6, 78.7, 94.6, 90.7, 85.7),
        "FourierFT": (63.8, 84.9, 90.0, 92.2, 88.2, 79.1, 94.2, 90.8, 85.4),
        "LoCA": (64.5, 85.2, 90.5, 92.0, 88.7, 81.5, 94.6, 90.9, 86.0),
    },
    "large": {
        "FT": (68.0, 90.2, 90.9, 94.7, 92.2, 86.6, 96.4, 92.4, 88.9),
        "Adapter-H": (66.5, 89.9, 88.7, 94.7, 92.1, 83.4, 96.2, 91.0, 87.8),
        "LoRA": (68.4, 90.5, 90.2, 94.4, 91.6, 85.7, 96.2, 92.4, 88.7),
        "AdaLoRA": (67.9, 90.6, 90.6, 94.2, 91.6, 86.4, 95.9, 92.7, 88.7),
        "DoRA": (68.3, 90.5, 90.7, 94.8, 91.8, 85.4, 96.3, 92.4, 88.8),
        "VeRA": (68.0, 90.2, 90.9, 94.4, 90.3, 85.9, 96.1, 91.7, 88.4),
        "FourierFT": (67.1, 88.9, 90.9, 94.4, 89.2, 87.4, 96.0, 91.9, 88.2),
        "LoCA": (68.8, 89.4, 91.0, 94.4, 90.0, 87.9, 96.4, 92.0, 88.7),
    },
}
# OxfordPets, StanfordCars, CIFAR10, DTD, EuroSAT, FGVC, RESISC45, CIFAR100 and the printed mean,
# table vit_results.
_VIT = {
    "base": {
        "LP": (92.94, 47.02, 96.82, 76.47, 94.78, 29.21, 86.13, 86.05, 76.18),
        "FF": (93.09, 84.71, 98.89, 77.37, 98.91, 63.83, 95.72, 90.72, 87.91),
        "LoRA": (93.26, 82.12, 98.51, 79.54, 98.65, 55.67, 94.82, 91.51, 86.76),
        "FourierFT 72K": (93.07, 73.74, 98.64, 77.72, 98.32, 48.24, 92.89, 91.23, 84.23),
        "LoCA 72K": (93.36, 77.78, 98.66, 78.44, 98.94, 53.23, 93.88, 91.40, 85.71),
        "FourierFT 239K": (93.44, 79.34, 98.70, 79.43, 98.81, 52.26, 94.19, 91.60, 86.02),
        "LoCA 239K": (94.10, 80.11, 98.62, 80.15, 99.04, 54.86, 94.73, 91.68, 86.66),
    },
    "large": {
        "LP": (91.93, 43.24, 97.78, 72.52, 93.76, 26.55, 83.52, 88.73, 74.75),
        "FF": (94.13, 85.84, 99.22, 81.64, 99.13, 63.33, 96.21, 94.67, 89.27),
        "LoRA": (94.34, 85.92, 98.93, 79.90, 98.91, 64.47, 95.63, 92.37, 88.81),
        "FourierFT 144K": (94.52, 75.35, 99.12, 79.78, 98.79, 48.32, 94.18, 93.01, 85.38),
        "LoCA 144K": (94.60, 82.04, 98.92, 79.02, 98.97, 57.62, 94.41, 91.76, 87.17),
        "FourierFT 480K": (94.78, 82.27, 99.00, 79.03, 98.95, 56.96, 95.53, 92.56, 87.39),
        "LoCA 480K": (94.47, 83.47, 99.02, 80.21, 99.03, 63.02, 95.49, 92.65, 88.42),
    },
}
# BLEU, METEOR, ROUGE-L with GPT-2 large, table NLG.
_E2E_LARGE = {
    "FF": (68.5, 46.0, 69.9),
    "Adapter-L": (68.9, 46.1, 71.3),
    "LoRA": (70.1, 46.8, 72.0),
    "VeRA": (70.3, 46.9, 71.6),
    "FourierFT": (70.2, 47.0, 71.8),
    "LoCA": (70.4, 47.2, 72.1),
}
# FourierFT and LoCA on MT-Bench and Vicuna for LLaMA1-7b, 1-13b, 2-7b, 2-13b, table Instruction.
_INSTRUCTION = (
    ((4.33, 6.97), (4.47, 7.18)),
    ((4.70, 7.61), (4.83, 7.85)),
    ((4.65, 7.62), (4.82, 7.78)),
    ((5.37, 7.95), (5.52, 8.11)),
)
# Memory in MB on RoBERTa-base, LLaMA-1-7b, ViT-base, table complexity; None: not measured.
_MEMORY = {
    "LoCA-1": (3828, None, 4214),
    "LoCA-2": (3834, 57152, 3782),
    "LoCA-3": (3793, 57888, 3754),
    "FourierFT": (4050, 58868, 3760),
    "LoRA": (3758, 53154, 3708),
}


def cola(setting: Setting, *, size: str, method: str = "LoCA") -> Measurement:
    """A method's score on CoLA less the best of all other methods.

    Args:
        setting: Not used.
        size: ``base`` or ``large``.
        method: The method.

    Source: section 5.1, on the table of GLUE results.
    """
    del setting
    scores = {name: row[_COLA] for name, row in _GLUE[size].items()}
    mine = scores.pop(method)
    best = max(scores, key=lambda name: scores[name])
    return Measurement.exact(mine - scores[best], f"{method} {mine}, {best} {scores[best]}.")


def glue_wins(setting: Setting, *, over: str = "FourierFT") -> Measurement:
    """Fraction of GLUE tasks on which LoCA is above another method, the smaller of the two models.

    Args:
        setting: Not used.
        over: The other method.

    Source: section 5.1, on the table of GLUE results.
    """
    del setting
    fractions = {}
    for size, rows in _GLUE.items():
        pairs = list(zip(rows["LoCA"], rows[over], strict=True))[:-1]
        fractions[size] = sum(a > b for a, b in pairs) / len(pairs)
    shown = ", ".join(f"RoBERTa-{size}: {fraction:g}" for size, fraction in fractions.items())
    return Measurement.exact(min(fractions.values()), f"{shown}.")


def averages(
    setting: Setting, *, table: str, leave_out: Sequence[str] = (), average: str = "mean"
) -> Measurement:
    """Largest deviation of a printed mean from the mean of its row, in units of the last digit.

    A correctly rounded mean deviates by at most half a unit.

    Args:
        setting: Not used.
        table: ``glue`` (one decimal) or ``vit`` (two).
        leave_out: Rows to exclude.
        average: ``mean`` or ``median``.

    Source: the columns of averages of the tables of results.
    """
    del setting
    tables, unit = (_GLUE, 0.1) if table == "glue" else (_VIT, 0.01)
    gaps = {
        f"{method}, {size}": abs(getattr(statistics, average)(row[:-1]) - row[-1]) / unit
        for size, rows in tables.items()
        for method, row in rows.items()
        if method not in leave_out
    }
    worst = max(gaps, key=lambda name: gaps[name])
    return Measurement.exact(gaps[worst], f"{len(gaps)} rows; largest for {worst}.")


def end_to_end(setting: Setting, *, method: str = "LoCA") -> Measurement:
    """Smallest lead of a method over the best other method on BLEU, METEOR and ROUGE-L.

    Args:
        setting: Not used.
        method: The method.

    Source: section 5.2, on the table NLG with GPT-2 large.
    """
    del setting
    others = [row for name, row in _E2E_LARGE.items() if name != method]
    leads = [
        mine - max(column)
        for mine, column in zip(_E2E_LARGE[method], zip(*others, strict=True), strict=True)
    ]
    return Measurement.exact(min(leads))


def instruction(setting: Setting, *, higher: str = "LoCA") -> Measurement:
    """Smallest lead of LoCA over FourierFT on MT-Bench and Vicuna, over four LLaMA models.

    Args:
        setting: Not used.
        higher: ``LoCA``, or ``FourierFT`` for its lead over LoCA.

    Source: section 5.3, on the table Instruction.
    """
    del setting
    leads = [
        b - a if higher == "LoCA" else a - b
        for first, second in _INSTRUCTION
        for a, b in zip(first, second, strict=True)
    ]
    return Measurement.exact(min(leads))


def memory(setting: Setting, *, forms: Sequence[str], over: str = "FourierFT") -> Measurement:
    """Another method's memory less that of each form of LoCA, in MB, the smallest over the models.

    Args:
        setting: Not used.
        forms: ``LoCA-1``, sparse, ``LoCA-2``, by FFT, or ``LoCA-3``, by matrices, the default.
        over: The other method.

    Source: the table complexity, and the sentence on memory below it.
    """
    del setting
    parts = []
    for form in forms:
        pairs = zip(_MEMORY[over], _MEMORY[form], strict=True)
        gaps = [theirs - mine for theirs, mine in pairs if theirs is not None and mine is not None]
        parts.append(Estimate(form, float(min(gaps))))
    return Measurement.of(parts)

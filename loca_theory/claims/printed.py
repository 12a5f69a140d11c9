"""Numbers of the paper's tables, by their LaTeX labels, for the checks that judge them.

A score table maps a model and a method to the scores in the order of :data:`COLUMNS`. The tests
compare all numbers with the transcription in ``experiments/paper``.
"""

from __future__ import annotations

from collections.abc import Mapping

Scores = Mapping[str, Mapping[str, tuple[float, ...]]]

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "glue": ("CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "average"),
    "vit": ("OxfordPets", "StanfordCars", "CIFAR10", "DTD", "EuroSAT", "FGVC", "RESISC45",
            "CIFAR100", "average"),
    "e2e": ("BLEU", "NIST", "METEOR", "ROUGE-L", "CIDEr"),
    "instruction": ("MT-Bench", "Vicuna"),
    "ablation": ("OxfordPets", "DTD", "QQP", "CoLA"),
}  # fmt: skip
"""Columns of each table of scores: benchmarks or metrics, and the mean where it is printed."""

TABLES: Mapping[str, Scores] = {
    "glue": {
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
    },
    "vit": {
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
    },
    "e2e": {
        "medium": {
            "FF": (68.2, 8.62, 46.2, 71.0, 2.47),
            "Adapter-L": (68.9, 8.71, 46.1, 71.3, 2.47),
            "Adapter-H": (67.3, 8.5, 46.0, 70.7, 2.44),
            "LoRA": (68.9, 8.76, 46.6, 71.5, 2.53),
            "VeRA": (70.1, 8.81, 46.6, 71.5, 2.50),
            "FourierFT": (69.1, 8.82, 47.0, 71.8, 2.51),
            "LoCA": (69.7, 8.85, 46.6, 72.1, 2.52),
        },
        "large": {
            "FF": (68.5, 8.78, 46.0, 69.9, 2.45),
            "Adapter-L": (68.9, 8.70, 46.1, 71.3, 2.45),
            "LoRA": (70.1, 8.83, 46.8, 72.0, 2.47),
            "VeRA": (70.3, 8.85, 46.9, 71.6, 2.54),
            "FourierFT": (70.2, 8.90, 47.0, 71.8, 2.50),
            "LoCA": (70.4, 8.88, 47.2, 72.1, 2.54),
        },
    },
    "instruction": {
        "LLaMA1-7b": {
            "FF": (4.46, 7.24),
            "LoRA": (4.52, 7.52),
            "FourierFT": (4.33, 6.97),
            "LoCA": (4.47, 7.18),
        },
        "LLaMA1-13b": {
            "FF": (4.78, 7.68),
            "LoRA": (4.87, 7.82),
            "FourierFT": (4.70, 7.61),
            "LoCA": (4.83, 7.85),
        },
        "LLaMA2-7b": {
            "FF": (4.94, 7.81),
            "LoRA": (4.67, 7.68),
            "FourierFT": (4.65, 7.62),
            "LoCA": (4.82, 7.78),
        },
        "LLaMA2-13b": {
            "FF": (5.55, 8.13),
            "LoRA": (5.48, 8.03),
            "FourierFT": (5.37, 7.95),
            "LoCA": (5.52, 8.11),
        },
    },
    "ablation": {
        "base": {
            "V1": (92.8, 76.8, 87.7, 63.2),
            "V2": (91.9, 76.3, 86.5, 61.6),
            "V3": (93.4, 79.1, 88.0, 64.1),
            "V4": (93.8, 79.5, 88.6, 64.3),
            "V5": (93.8, 79.7, 88.4, 64.4),
            "LoCA": (93.8, 79.7, 88.7, 64.5),
        },
    },
}
"""Scores by table, model and method."""

MARKED: Mapping[str, Mapping[str, Mapping[str, tuple[float, ...]]]] = {
    "bold": {
        "glue": {
            "base": (65.6, 87.6, 92.7, 93.4, 91.9, 81.5, 95.2, 91.5, 86.4),
            "large": (68.8, 90.6, 91.0, 94.8, 92.2, 87.9, 96.4, 92.7, 88.9),
        },
        "vit": {
            "base": (94.10, 84.71, 98.89, 80.15, 99.04, 63.83, 95.72, 91.68, 87.91),
            "large": (94.78, 85.92, 99.12, 81.64, 99.03, 64.47, 96.21, 94.67, 89.27),
        },
        "instruction": {
            "LLaMA1-7b": (4.52, 7.52),
            "LLaMA1-13b": (4.87, 7.85),
            "LLaMA2-7b": (4.94, 7.81),
            "LLaMA2-13b": (5.55, 8.13),
        },
        "ablation": {"base": (93.8, 79.7, 88.7, 64.5)},
    },
    "underlined": {
        "instruction": {
            "LLaMA1-7b": (4.47, 7.24),
            "LLaMA1-13b": (4.83, 7.82),
            "LLaMA2-7b": (4.82, 7.78),
            "LLaMA2-13b": (5.52, 8.11),
        },
    },
}
"""The number in bold, or underlined, in each column of a table and model."""

SPREADS = (0.03, 0.25, 0.03, 0.18, 0.05, 0.02, 91.76, 0.09)
"""Standard deviations of LoCA with 144K on ViT-large, in the columns of ``vit`` but the mean."""

COST_MODELS = ("RoBERTa-base", "LLaMA-1-7b", "ViT-base")
"""The columns of the table of costs."""

SPEEDS = {
    "LoCA-1": (28.56, None, 2.28),
    "LoCA-2": (25.12, 0.63, 1.01),
    "LoCA-3": (27.77, 0.87, 2.33),
    "FourierFT": (28.82, 0.89, 2.35),
    "LoRA": (31.14, 1.18, 2.78),
}
"""Iterations per second by method and :data:`COST_MODELS`; None: not measured. LoCA-1 is the sparse
form, LoCA-2 that by FFT, LoCA-3 that by matrix products, the default."""

MEMORY = {
    "LoCA-1": (3828, None, 4214),
    "LoCA-2": (3834, 57152, 3782),
    "LoCA-3": (3793, 57888, 3754),
    "FourierFT": (4050, 58868, 3760),
    "LoRA": (3758, 53154, 3708),
}
"""Memory in MB, in the same order."""

GLUE_EPOCHS = {
    "base": (80, 30, 50, 40, 35, 80, 30, 50),
    "large": (40, 15, 30, 25, 20, 50, 20, 50),
}
"""Epochs by size of RoBERTa and GLUE task."""

GLUE_ALTERNATING_STEPS = {
    "base": (2100, 3000, 600, 3000, 3000, 600, 3000, 600),
    "large": (1000, 3000, 400, 3000, 3000, 300, 3000, 600),
}
"""B_s by size of RoBERTa and GLUE task."""

GLUE_BATCH = 32
"""Batch size of all GLUE tasks."""

GLUE_TRAINING_SETS = (8551, 392_702, 3668, 104_743, 363_846, 2490, 67_349, 5749)
"""Sizes of the training sets of the GLUE tasks, which the paper does not print."""

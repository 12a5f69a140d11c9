"""Fine-tuning small real models by every method, under one protocol.

:mod:`~experiments.finetuning.tasks` brings data and pretrained models,
:mod:`~experiments.finetuning.methods` adapts a model within a budget,
:mod:`~experiments.finetuning.training` trains one model once,
:mod:`~experiments.finetuning.protocol` tunes the learning rate of each method and repeats over
seeds, and :mod:`~experiments.finetuning.statistics` compares. Numbers that were chosen stand in the
TOML files beside the code.
"""

"""Fine-tune small real models with every method, under one protocol.

:mod:`~experiments.finetuning.tasks` provides data and pretrained models,
:mod:`~experiments.finetuning.methods` adapts a model within a budget,
:mod:`~experiments.finetuning.training` trains one model once,
:mod:`~experiments.finetuning.protocol` defines runs and the choice of learning rates,
:mod:`~experiments.finetuning.session` runs and stores them over all seeds, and
:mod:`~experiments.finetuning.statistics` compares the results. All chosen numbers are in the TOML
files next to the code.
"""

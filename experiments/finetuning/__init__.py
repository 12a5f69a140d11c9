"""Fine-tune small models with every method, under one protocol.

:mod:`~experiments.finetuning.tasks` provides data and pretrained models,
:mod:`~experiments.finetuning.methods` adapts a model within a budget,
:mod:`~experiments.finetuning.training` trains a model for several seeds at once,
:mod:`~experiments.finetuning.protocol` defines runs and the choice of learning rates,
:mod:`~experiments.finetuning.session` runs and stores them over all seeds,
:mod:`~experiments.finetuning.run_tables` reads their tables, and
:mod:`~experiments.finetuning.statistics` compares the results. The packages
:mod:`~experiments.finetuning.verdicts`, :mod:`~experiments.finetuning.prediction` and
:mod:`~experiments.finetuning.low_rank` answer one question each. All chosen numbers are in the TOML
files next to the code.
"""

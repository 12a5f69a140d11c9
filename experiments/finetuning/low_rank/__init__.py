"""Full fine-tunes under other trainings, and the spectra of their increments.

:mod:`~experiments.finetuning.low_rank.full` fine-tunes all weights with an optimiser,
:mod:`~experiments.finetuning.low_rank.spectra` measures the increments,
:mod:`~experiments.finetuning.low_rank.factors` varies one factor of the training at a time, and
:mod:`~experiments.finetuning.low_rank.factor_tables` makes the tables.
"""

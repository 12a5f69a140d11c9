"""Numbers that may predict which adapter wins, and how well they do.

:mod:`~experiments.finetuning.prediction.curvature` records gradients and curvatures of a model,
:mod:`~experiments.finetuning.prediction.metric` measures matrices by them,
:mod:`~experiments.finetuning.prediction.reach` describes the matrices that an adapter can reach,
:mod:`~experiments.finetuning.prediction.predictors` computes the numbers,
:mod:`~experiments.finetuning.prediction.forecast` does so for a task and a seed, and
:mod:`~experiments.finetuning.prediction.rank_correlation` compares them with the accuracy reached.
"""

"""Comparisons that are fixed before the runs, and the verdicts on them.

:mod:`~experiments.finetuning.verdicts.design` says what is compared,
:mod:`~experiments.finetuning.verdicts.power` plans the number of runs,
:mod:`~experiments.finetuning.verdicts.estimates` takes differences of runs and their means, and
:mod:`~experiments.finetuning.verdicts.decisions` gives the verdicts.
"""

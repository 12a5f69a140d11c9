"""Comparisons that are fixed before the runs, and the verdicts on them.

:mod:`~experiments.finetuning.verdicts.design` says what is compared, as
:mod:`~experiments.finetuning.verdicts.design_file` reads it from ``experiments/design.toml``;
:mod:`~experiments.finetuning.verdicts.power` plans the number of runs;
:mod:`~experiments.finetuning.verdicts.paired` takes differences of runs,
:mod:`~experiments.finetuning.verdicts.estimates` their means with bounds, and
:mod:`~experiments.finetuning.verdicts.decisions` the verdicts.
"""

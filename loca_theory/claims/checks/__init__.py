"""The checks of the ledger, one module per subject.

A check is a public function that takes its arguments by name: those that the ledger gives it and,
if it asks for them,

- ``tier``, the :class:`~loca_theory.claims.Tier`: how much work to do;
- ``rng``, the only source of randomness, which depends only on the root seed and the claim;
- ``results``, the folder with the stored tables of experiments, None if there is none.

It returns a number, an :class:`~loca_theory.claims.Estimate` or a dictionary of them, alone or with
a remark for the reader; or it yields each number with its name, or deviations: numbers and arrays
of which the largest absolute entry is the number. Without the stored table that it needs, it raises
NotMeasuredError. It decides nothing. The ``passage`` of a claim says where the paper makes the
statement.
"""

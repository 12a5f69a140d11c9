"""The checks of the ledger, one module per subject.

A check takes a :class:`~loca_theory.claims.Setting` and the arguments that the ledger gives it, and
returns a :class:`~loca_theory.claims.Measurement`. It decides nothing.
"""

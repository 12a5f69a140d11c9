"""The checks, a module a subject; each measures, none decides.

A check takes a :class:`~loca_theory.claims.Setting` and the arguments that the ledger gives it, and
returns a :class:`~loca_theory.claims.Measurement`.
"""

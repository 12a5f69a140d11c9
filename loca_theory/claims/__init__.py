"""The ledger: every checkable statement of the paper, its check, and its verdict.

- :func:`verify`: check one claim, several or all; returns a :class:`VerificationResult`.
- :func:`load_ledger`: read the claims (``claims.toml``): section, statement, assumptions, check,
  an acceptance rule that is fixed before the stored run, with the history of the rule, and an
  alternative under which it is refuted.
- :mod:`loca_theory.claims.checks`: the checks, one module per subject. A check returns a number,
  an :class:`Estimate` or several of them by name, and decides nothing.
- :mod:`loca_theory.claims.rules`: turn estimates and their errors into a verdict, with one
  family-wise error rate for the whole ledger.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The paper's tables as data: hyper-parameters, and results to compare with.

There is one TOML file per table, in ``loca_theory/claims/printed_tables``. ``python -m experiments.paper list`` lists them, and
``python -m experiments.paper compare PAPER.tex`` compares every number with the paper's LaTeX.
"""

from experiments.paper.tables import TABLES, Axes, Field, Row, Table, load, parse

__all__ = ["TABLES", "Axes", "Field", "Row", "Table", "load", "parse"]

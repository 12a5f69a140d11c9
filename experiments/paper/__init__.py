"""The paper's tables as data: hyper-parameters, and results to compare with.

There is one TOML file per table, in ``loca_theory/claims/printed_tables``, and
``python -m experiments.paper list`` lists them. At commit 5c3bc85, the last with a parser of the
paper's LaTeX, all 1015 comparisons with it agreed.
"""

from experiments.paper.tables import TABLES, Axes, Field, Row, Table, load, parse

__all__ = ["TABLES", "Axes", "Field", "Row", "Table", "load", "parse"]

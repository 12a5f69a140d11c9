"""The paper's tables as data: hyper-parameters, and the results to hold our own against.

One TOML file a table, named for what it holds; ``python -m experiments.paper list`` shows them and
``python -m experiments.paper compare PAPER.tex`` holds every number against the paper's LaTeX.
"""

from experiments.paper.tables import TABLES, Axes, Field, Row, Table, load, parse

__all__ = ["TABLES", "Axes", "Field", "Row", "Table", "load", "parse"]

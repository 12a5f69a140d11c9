"""The ``loca-theory`` command: parsing, progress and printing only."""

from loca_theory.cli.main import main

__all__ = ["main"]

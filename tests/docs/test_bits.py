"""The tables of the page on equal bits are what the package computes."""

import re

import numpy as np
import pytest

from loca_theory.expressivity.coders.bounds import spectral_bound
from loca_theory.expressivity.coders.registry import CODERS

from .pages import DOCS

BITS = (0.25, 0.5, 1, 2, 4)
TEXT = (DOCS / "theory" / "bits.md").read_text(encoding="utf-8")


def cells(row):
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", TEXT, re.MULTILINE)
    return [cell.strip() for cell in line.split("|")]


@pytest.mark.parametrize("name", CODERS)
def test_errors_of_independent_entries_are_those_of_the_coder(name):
    coded = [CODERS[name].expected((768, 768), bits) for bits in BITS]
    for bits, code, cell in zip(BITS, coded, cells(name), strict=False):
        # Schemes of one or of whole bits are printed once, or at whole bits.
        is_printed = code is not None and (bits == 1 or code.bits > bits - 0.1)
        assert cell == (f"{code.error:.4f}" if is_printed else "")


def test_what_a_rank_allows_is_the_bound():
    ranks = [int(rank) for rank in cells("rank, equal singular values")]
    bounds = [spectral_bound(np.ones(rank), (10**6, 10**6), 1.0) * 4 for rank in ranks]
    assert [f"{bound:.3f}" for bound in bounds] == cells("G, large matrices")

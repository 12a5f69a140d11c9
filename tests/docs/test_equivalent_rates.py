"""The table of equivalent rates in the how-to is that of the stored rows."""

from pathlib import Path

import pytest

from experiments.peft_benchmark import equivalents
from loca_theory.expressivity.laws.first_step import of_low_rank, of_orthogonal_atoms

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "compare-at-one-step.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


@pytest.fixture(scope="module")
def rows():
    return equivalents.stored(equivalents.STORED)


def test_the_table_is_that_of_the_stored_rows(rows):
    assert equivalents.printed(rows) in PAGE
    assert not rows.duplicated(["tuner", "p"]).any()
    assert (rows["equivalent_lr"].notna() == (rows["reason"] == "")).all()
    assert set(rows.loc[rows["p"] == 768, "tuner"]) == set(equivalents.tuners())


@pytest.mark.parametrize("p", [768, 4096])
def test_measured_rows_are_what_the_closed_forms_say(rows, p):
    """LoRA by its law, and SHiRA's plain entries; each equivalent rate is in proportion."""
    at = rows[rows["p"] == p].set_index("tuner")
    lora = 1e-4 * of_low_rank(p, p, 8, 1.0).frobenius
    shira = 1e-4 * of_orthogonal_atoms(int(at.loc["SHIRA", "numbers"]), 1.0).frobenius
    assert at.loc["LORA", "frobenius"] == pytest.approx(lora, rel=0.02)
    assert at.loc["SHIRA", "frobenius"] == pytest.approx(shira)
    assert at.loc["LORA", "equivalent_lr"] == pytest.approx(2e-4)
    rate = 1e-4 * 2 * at.loc["LORA", "frobenius"] / shira
    assert at.loc["SHIRA", "equivalent_lr"] == pytest.approx(rate, rel=1e-3)


def test_sentences_are_those_of_the_stored_rows(rows):
    by_shape = rows.set_index(["tuner", "p"])
    step, rate = by_shape["frobenius"], by_shape["equivalent_lr"]
    for tuner in ("IA3", "LOHA", "SHIRA"):
        assert rate[tuner, 768] == pytest.approx(rate[tuner, 4096], rel=0.01)
    counts = rows["p"].value_counts()
    for sentence in (
        f"768² {step['WAVEFT', 768] / step['FOURIERFT', 768]:.0f} times less than WaveFT",
        f"is {rate['FOURIERFT', 4096] / rate['FOURIERFT', 768]:.0f} times larger at 4096²",
        f"only {counts[4096]} of {counts[768]} are there",
        f"of 768² by {2e3 * step['LORA', 768]:.1f}e-3",
        f"4096² by {2e2 * step['LORA', 4096]:.1f}e-2",
    ):
        assert sentence in WORDS, sentence

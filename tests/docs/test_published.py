"""Numbers of the page on published fine-tunes are those of the stored tables."""

import re
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
STUDIES = {
    "MiniLM → sentences of another domain": "sre",
    "BERT of reactions → classes": "rxnfp",
    "the same, on fewer reactions": "rxnfp-10k",
    "LSTM → 147 alleles": "mhc-1",
    "LSTM → 135 alleles": "mhc-2",
    "LSTM → mass spectrometry": "mhc-hlap",
    "CHGNet": "chgnet",
    "ANI": "ani",
}
COLUMNS = [
    ("Delta-CoMe", "none"), ("entropy-coded", "none"), ("entropy-coded", "dct"),
    ("entropy-coded", "random"), ("BitDelta", "none"), ("BitDelta", "dct"), ("BitDelta", "random"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "study"), STUDIES.items())
def test_errors_at_one_bit_are_those_of_the_stored_table(row, study):
    text = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    section = text.partition("## At equal bits")[2]
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", section, re.MULTILINE)
    printed = [float(cell.strip(" *")) for cell in line.split("|")]
    table = pd.read_parquet(ROOT / "figures" / "published" / f"{study}-bits.parquet")
    means = table[table["bits"] == 1].groupby(["method", "transform"])["error"].mean()
    assert printed == pytest.approx([means[column] for column in COLUMNS], abs=0.00501)


def test_how_often_the_singular_values_name_the_better_of_lora_and_loca():
    """Also beside the guess that it is always LoRA."""
    tables = [
        pd.read_parquet(ROOT / "figures" / "published" / f"{study}-retained.parquet")
        for study in STUDIES.values()
    ]
    rows = pd.concat(tables).query("r == 4 and accounting == 'paper' and method in ['R', 'D']")
    keys = ["study", "pair", "name"]
    own = rows.pivot_table(index=keys, columns="method", values="retained")
    predicted = rows[rows["method"] == "D"].set_index(keys)["predicted"].reindex(own.index)
    right = ((own["R"] > own["D"]) == (own["R"] > predicted)).sum()
    always = (own["R"] > own["D"]).sum()
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    assert f"in {right} of {len(own)}" in page.replace("\n  ", " ")
    assert f"(LoRA does retain more in {always})" in page
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"say in {right / len(own):.0%} whether" in readme
    assert f"LoRA does in {always / len(own):.0%}." in readme

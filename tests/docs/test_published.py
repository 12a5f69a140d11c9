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


PAGE = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())


def stored(kind):
    """The stored tables of all studies."""
    folder = ROOT / "figures" / "published"
    return pd.concat(pd.read_parquet(folder / f"{one}-{kind}.parquet") for one in STUDIES.values())


@pytest.mark.parametrize(("row", "study"), STUDIES.items())
def test_errors_at_one_bit_are_those_of_the_stored_table(row, study):
    section = PAGE.partition("## At equal bits")[2]
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", section, re.MULTILINE)
    printed = [float(cell.strip(" *")) for cell in line.split("|")]
    table = stored("bits").query("bits == 1 and study == @study")
    means = table.groupby(["method", "transform"])["error"].mean()
    assert printed == pytest.approx([means[column] for column in COLUMNS], abs=0.00501)


def test_how_often_the_singular_values_name_the_better_of_lora_and_loca():
    """Also beside the guess that it is always LoRA."""
    rows = stored("retained").query("r == 4 and accounting == 'paper' and method in ['R', 'D']")
    keys = ["study", "pair", "name"]
    own = rows.pivot_table(index=keys, columns="method", values="retained")
    predicted = rows[rows["method"] == "D"].set_index(keys)["predicted"].reindex(own.index)
    right = ((own["R"] > own["D"]) == (own["R"] > predicted)).sum()
    always = (own["R"] > own["D"]).sum()
    assert f"in {right} of {len(own)}" in WORDS
    assert f"(LoRA does retain more in {always})" in WORDS
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"say in {right / len(own):.0%} whether" in readme
    assert f"LoRA does in {always / len(own):.0%}." in readme


def test_how_often_cosines_gain_more_than_a_random_transform():
    coded = stored("bits").query("method == 'entropy-coded'")
    keys = ["bits", "study", "pair", "name"]
    error = coded.pivot_table(index=keys, columns="transform", values="error")
    cosines = error[["dct", "dct of inputs", "dct of outputs"]].min(axis=1)
    gains = error[["none", "random"]].min(axis=1) - cosines >= 0.03
    count = gains.groupby("bits").sum()
    lstm = gains[1.0].groupby("study").sum().filter(like="mhc").sum()
    assert count[2.0] == 0
    said = f"in {count[1.0]} of {len(gains[1.0])} matrices ({lstm} of LSTMs; {count[0.5]} at half"
    assert said in WORDS


def test_what_a_coded_classifier_answers_is_in_the_stored_table():
    table = pd.read_parquet(ROOT / "figures" / "minilm" / "coded.parquet").set_index("method")
    uncoded, rank = table.loc["linear layers"], table.loc["Delta-DCT by rank"]
    rest = table[table["bits"].notna()].drop("Delta-DCT by rank")
    assert f"{uncoded['accuracy']:.1%} right uncoded" in WORDS
    assert (rest["accuracy"].min(), rest["accuracy"].max()) == (0.7825, 0.795)
    assert f"{rank['accuracy'].mean():.0%} with Delta-DCT by rank." in WORDS
    same = rest.drop("Delta-CoMe")["agreement"]
    said = f"for {uncoded['agreement']:.1%} of the texts uncoded, "
    said += f"{table.loc['Delta-CoMe', 'agreement']:.1%} with singular vectors, "
    said += f"{rank['agreement'].mean():.0%} with Delta-DCT by rank, "
    said += f"{int(100 * same.min())} to {same.max():.0%} with the others"
    assert said in WORDS

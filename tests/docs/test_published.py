"""Numbers on published fine-tunes are those of the stored tables, and what is said survives."""

import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.published.page import ACCOUNTINGS, STUDIES, UNEVEN, printed, winners

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "figures" / "published"
TABLE = pd.read_parquet(FOLDER / "published.parquet")
STEPS = winners(TABLE).query("role == 'increment'")


def words(path):
    return " ".join((ROOT / path).read_text(encoding="utf-8").split())


def test_the_page_has_what_the_command_prints():
    page = words("docs/published.md")
    for part in printed(TABLE).split("\n\n"):
        assert " ".join(part.split()) in page


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize("left_out", STUDIES)
def test_the_finding_survives_without_any_study_by_any_accounting(left_out, accounting):
    """LoRA wins most often in some networks, plain entries in others; LoCA in a quarter at most."""
    readme = words("README.md")
    said = "in at most a quarter of any study's matrices, whether an index costs a number, bits or "
    said += "nothing."
    assert said in readme
    assert f"[{STEPS.groupby('study')['pair'].nunique().sum()} published fine-tunes]" in readme
    lstms = STEPS[STEPS["package"] == "mhcnuggets"]
    assert f"({lstms.groupby('study')['pair'].nunique().sum()} are LSTMs of one package)" in readme
    rows = STEPS[(STEPS["study"] != left_out) & (STEPS["accounting"] == accounting)]
    fractions = pd.crosstab(rows["study"], rows["best"], normalize="index")
    assert fractions["LoCA"].max() < 0.25
    assert {"LoRA", "entries"} <= set(fractions.idxmax(axis=1))


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_what_is_said_of_the_lead_of_lora(accounting):
    """On transformers and, in the mean, on LSTMs it is larger than in controls; not in IM2Deep."""
    rows = winners(TABLE)
    rows = rows[rows["accounting"] == accounting]
    lead = rows.assign(lead=rows["LoRA"] - rows["LoCA"]).pivot_table("lead", "study", "role")
    for study in ("sre", "rxnfp", "rxnfp-10k", "mhc-1", "mhc-2", "mhc-hlap"):
        assert lead.loc[study, "increment"] > lead.loc[study, ["base", "tuned"]].max()
    assert lead.loc["im2deep", "increment"] < lead.loc["im2deep", ["base", "tuned"]].min()


def test_how_far_the_singular_values_are_off():
    errors = 100 * (TABLE["LoCA"] - TABLE["predicted"]).abs()
    is_change = (TABLE["role"] == "increment") & TABLE["study"].str.startswith("mhc")
    worst = errors[is_change & (TABLE["concentration"] <= 1.2)].max()
    assert f"(in one LSTM they are {worst:.0f} points off)" in words("docs/published.md")
    elsewhere = errors[(TABLE["role"] != "bfloat16") & (TABLE["unevenness"] > UNEVEN)].max()
    theory = words("docs/theory/any-basis.md")
    assert f"elsewhere it was [up to {elsewhere:.0f} points off]" in theory
    assert errors[TABLE["unevenness"] <= UNEVEN].max() < 5
    assert "predicted what LoCA retains to 5 points of energy" in theory


def test_without_a_study_the_page_is_not_printed():
    said = printed(TABLE[~TABLE["study"].isin(["ani", "mpnn"])])
    assert said.endswith("without the studies that were left out: ani, mpnn.")


ROWS = {
    "MiniLM → sentences of another domain": "sre",
    "BERT of reactions → classes": "rxnfp",
    "the same, on fewer reactions": "rxnfp-10k",
    "LSTM → alleles of class I": "mhc-1",
    "LSTM → alleles of class II": "mhc-2",
    "LSTM → mass spectrometry": "mhc-hlap",
    "IM2Deep": "im2deep",
    "CHGNet": "chgnet",
    "ANI": "ani",
}
COLUMNS = [
    ("Delta-CoMe", "none"),
    ("entropy-coded", "none"),
    ("entropy-coded", "dct"),
    ("entropy-coded", "random"),
    ("BitDelta", "none"),
    ("BitDelta", "dct"),
    ("BitDelta", "random"),
]
BITS = pd.read_parquet(FOLDER / "published-bits.parquet")
CODERS = (ROOT / "docs" / "theory" / "bits.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("row", "study"), ROWS.items())
def test_errors_at_one_bit_are_those_of_the_stored_table(row, study):
    section = CODERS.partition("## On published fine-tunes")[2]
    (line,) = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", section, re.MULTILINE)
    errors = [float(cell.strip(" *")) for cell in line.split("|")]
    means = BITS.query("bits == 1 and study == @study").groupby(["method", "transform"])["error"]
    assert errors == pytest.approx([means.mean()[column] for column in COLUMNS], abs=0.00501)


def test_how_often_cosines_gain_more_than_a_random_transform():
    coded = BITS.query("method == 'entropy-coded'")
    keys = ["bits", "study", "pair", "name"]
    error = coded.pivot_table(index=keys, columns="transform", values="error")
    cosines = error[["dct", "dct of inputs", "dct of outputs"]].min(axis=1)
    gains = error[["none", "random"]].min(axis=1) - cosines >= 0.03
    count = gains.groupby("bits").sum()
    lstm = gains[1.0].groupby("study").sum().filter(like="mhc").sum()
    said = (
        f"in {count[1.0]} of {len(gains[1.0])} matrices ({lstm} of LSTMs; {count[0.5]} at half a "
    )
    assert said + f"bit, {count[2.0]} at two)" in " ".join(CODERS.split())


def test_which_coder_leaves_least_follows_the_best_adapter():
    best = STEPS.query("accounting == 'paper'").set_index(["study", "pair", "name"])["best"]
    best_coder = BITS.query("bits == 1").set_index(["study", "pair", "name"])
    best_coder = best_coder.groupby(level=[0, 1, 2]).apply(
        lambda rows: rows.loc[rows["error"].eq(rows["error"].min()), "method"].iloc[0]
    )
    of_lora = best_coder[best[best == "LoRA"].index] == "Delta-CoMe"
    of_entries = best_coder[best[best == "entries"].index] != "Delta-CoMe"
    said = f"singular vectors leave the least in {of_lora.sum()} of {len(of_lora)} matrices; where "
    said += f"plain entries do, a coder of single numbers in {of_entries.sum()} of "
    assert said + f"{len(of_entries)}." in " ".join(CODERS.split())


def test_what_a_coded_classifier_answers_is_in_the_stored_table():
    table = pd.read_parquet(ROOT / "figures" / "minilm" / "coded.parquet").set_index("method")
    uncoded, rank = table.loc["linear layers"], table.loc["Delta-DCT by rank"]
    coded = table[table["bits"].notna()].drop("Delta-DCT by rank")
    text = " ".join(CODERS.split())
    assert f"{uncoded['accuracy']:.1%} right uncoded" in text
    assert (coded["accuracy"].min(), coded["accuracy"].max()) == (0.7825, 0.795)
    assert f"{rank['accuracy'].mean():.0%} with Delta-DCT by rank." in text
    same = coded.drop("Delta-CoMe")["agreement"]
    said = f"for {uncoded['agreement']:.1%} of the texts uncoded, "
    said += f"{table.loc['Delta-CoMe', 'agreement']:.1%} with singular vectors, "
    said += f"{rank['agreement'].mean():.0%} with Delta-DCT by rank, "
    said += f"{int(100 * same.min())} to {same.max():.0%} with the others"
    assert said in text

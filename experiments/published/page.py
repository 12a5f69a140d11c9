"""The part of ``docs/published.md`` that has numbers, made from the stored table."""

from __future__ import annotations

import textwrap

import pandas as pd

from experiments.published.measures import FORMS
from loca_theory.claims.checks.published import named_winners
from loca_theory.claims.estimates import Estimate

RANK = 4
UNEVEN = 1.1  # largest unevenness up to which the singular values say what LoCA retains
ACCOUNTINGS = {"paper": "a number", "bits": "its bits", "trainable": "nothing"}
CONTROLS = {"base": "W₀", "tuned": "W′", "unrelated": "unrelated"}
STUDIES = {
    "sre": "MiniLM → sentences of another domain",
    "rxnfp": "BERT of reactions → classes",
    "rxnfp-10k": "the same, on fewer reactions",
    "mhc-1": "LSTM of peptides → alleles of class I",
    "mhc-2": "LSTM of peptides → alleles of class II",
    "mhc-hlap": "LSTM of peptides → mass spectrometry",
    "im2deep": "IM2Deep, peptides, one output → two",
    "chgnet": "CHGNet, potential → other functional",
    "ani": "ANI, potentials → coupled cluster",
}


def winners(table: pd.DataFrame) -> pd.DataFrame:
    """The form that retains most in each matrix of these studies at the page's rank."""
    rows = table[(table["r"] == RANK) & table["study"].isin(STUDIES)]
    return rows.assign(best=rows[list(FORMS)].idxmax(axis=1))


def counts(rows: pd.DataFrame) -> dict[str, int]:
    """In how many matrices each form retains most."""
    best = rows["best"].value_counts()
    return {form: int(best.get(form, 0)) for form in FORMS}


def printed(table: pd.DataFrame) -> str:
    """The sentences, the table and what decides, as the page has them."""
    winning = winners(table)
    missing = ", ".join(sorted({*STUDIES, "mpnn"} - {*table["study"]}))
    if missing:
        return f"The page has no numbers without the studies that were left out: {missing}."
    parts = [
        headline(winning),
        *markdown(winning),
        beside_controls(winning),
        *decides(winning, table),
    ]
    return "\n\n".join(parts)


def headline(winning: pd.DataFrame) -> str:
    """Sentences that hold for all studies."""
    steps = winning[winning["role"] == "increment"]
    fraction = (steps["best"] == "LoCA").groupby([steps["study"], steps["accounting"]]).mean().max()
    return wrapped(
        "**What retains most of a fine-tune depends on the network.** At the numbers of rank 4 it "
        "is LoRA or the largest plain entries of the change ΔW, and LoCA in at most "
        f"{fraction:.0%} of the matrices of a study, whether an index costs a number, its bits or "
        "nothing."
    )


def markdown(winning: pd.DataFrame) -> list[str]:
    """The table, and what its columns are."""
    steps = winning[winning["role"] == "increment"]
    first = steps[steps["accounting"] == "paper"]
    packages = first["package"].nunique()
    fine_tunes = first.groupby("study")["pair"].nunique()
    about = wrapped(
        f"{fine_tunes.sum()} fine-tunes from {packages} packages of PyPI, none trained by us; "
        f"{len(first)} changed matrices of at least 16 rows and columns. In cells with "
        "slashes stand LoRA / LoCA / plain entries: the mean energy retained, and in how many "
        "matrices each retains most, if an index, the location of a coefficient or entry, costs a "
        "number, its bits or nothing (the three accountings). The last column has the weights "
        "before (W₀, without near-copies) as a control; in it and in the mean energy an index "
        "costs a number."
    )
    by_cost = ("index costs a number", "its bits", "nothing")
    columns = ("study", "fine-tunes, matrices", "mean energy", *by_cost, "W₀")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, title in STUDIES.items():
        study, steps_of_study = winning[winning["study"] == name], first[first["study"] == name]
        energy = " / ".join(f"{steps_of_study[form].mean():.2f}" for form in FORMS)
        cells = [
            slashed(study[(study["role"] == "increment") & (study["accounting"] == accounting)])
            for accounting in ACCOUNTINGS
        ]
        is_control = (study["accounting"] == "paper") & (study["role"] == "base")
        cells.append(slashed(study[is_control]))
        size = f"{fine_tunes[name]}, {len(steps_of_study)}"
        lines.append("| " + " | ".join([title, size, energy, *cells]) + " |")
    return [about, "\n".join(lines)]


def beside_controls(winning: pd.DataFrame) -> str:
    """Where changes differ from weights that nobody fine-tuned."""
    lead = winning["LoRA"] - winning["LoCA"]
    keys = ["study", "accounting"]
    leads = winning.assign(lead=lead).pivot_table("lead", keys, "role")
    gains = leads.rsub(leads["increment"], axis=0)[list(CONTROLS)].min(axis=1)
    smallest = gains.groupby("study").min()
    transformers = min(smallest[["sre", "rxnfp", "rxnfp-10k"]])
    lstms = min(smallest[["mhc-1", "mhc-2", "mhc-hlap"]])
    priced = winning[winning["accounting"] == "paper"].groupby(["study", "role"])
    entries = {key: counts(rows)["entries"] for key, rows in priced}
    ani, chgnet = (
        {role: entries[name, role] for role in ("increment", *CONTROLS)}
        for name in ("ani", "chgnet")
    )
    sizes = priced.size()
    return wrapped(
        "**In the transformers LoRA's lead over LoCA is larger on changes than on weights**: in "
        f"all three (two bases) by {100 * transformers:.1f} points of energy at least, beside the "
        "weights before and after, by each accounting. In the LSTMs the mean lead is larger "
        f"({100 * lstms:.1f} points at least), not the number of matrices that have it; in "
        "IM2Deep it is smaller. Plain entries win in "
        f"{chgnet['increment']} of {sizes['chgnet', 'increment']} changes of CHGNet, and in "
        f"{chgnet['base']} of its weights before. In ANI they win in {ani['increment']} of "
        f"{sizes['ani', 'increment']} changes, but also in {ani['base']} weights before, "
        f"{ani['tuned']} after and {ani['unrelated']} differences of unrelated networks."
    )


def slashed(rows: pd.DataFrame) -> str:
    """The counts of a cell."""
    return " / ".join(map(str, counts(rows).values()))


def decides(winning: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """Predictions by the singular values, where they hold, and differences within a network."""
    steps = winning[winning["role"] == "increment"]
    gains, ranges = [], {}
    for accounting in ACCOUNTINGS:
        right = named_winners(steps[steps["accounting"] == accounting])
        ranges[accounting] = right.groupby("package").mean()
        baselines = ranges[accounting].drop(columns="singular values")
        best = baselines.mean().idxmax()
        gain = Estimate.mean(100 * (ranges[accounting]["singular values"] - baselines[best]))
        low, high = gain.interval(0.05)
        gains.append(f"{gain.value:.2f} ({low:.2f} to {high:.2f})".replace("-", "−"))
    rights = pd.concat(ranges.values())
    priced = steps[steps["accounting"] == "paper"]
    kernels = steps[steps["name"] == "lstm_1"]
    lora_in_kernels = [
        str(counts(kernels[kernels["accounting"] == accounting])["LoRA"])
        for accounting in ACCOUNTINGS
    ]
    errors = (table["LoCA"] - table["predicted"]).abs()
    even, fresh = table["unevenness"] <= UNEVEN, table["study"] == "mpnn"
    is_change = table["role"] == "increment"
    chosen = ~fresh & (table["role"] != "bfloat16")
    controls = chosen & ~is_change
    first = (table["accounting"] == "paper") & (table["r"] == RANK)
    lstm = priced[priced["package"] == "mhcnuggets"].groupby("name")
    layers = {name: counts(rows) for name, rows in lstm}
    sizes = lstm.size()
    weights = winning[(winning["accounting"] == "paper") & (winning["role"] == "base")]
    dense = counts(weights[weights["name"] == "dense_1"])
    changed = winning[
        (winning["accounting"] == "paper") & winning["role"].isin(["increment", "bfloat16"])
    ]
    sides = changed.pivot_table("best", ["study", "pair", "name"], "role", aggfunc="first")
    differ = sides["increment"] != sides["bfloat16"]
    loca = counts(priced)["LoCA"]
    return [
        "## What decides",
        wrapped(
            "- **The singular values say whether LoRA or LoCA retains more** in "
            f"{rights['singular values'].min():.0%} to {rights['singular values'].max():.0%} of "
            "the matrices of a package (LoRA's side is exact by construction). The best of four "
            "baselines compares the energy of the r largest alone with a number that depends on "
            f"shape and budget, and does in {rights['normal limit'].min():.0%} to "
            f"{rights['normal limit'].max():.0%}. A gain over it is not shown: {gains[0]}, "
            f"{gains[1]} and {gains[2]} points by the three accountings (95% intervals, packages "
            "as units). Neither says when plain entries win.",
            indent="  ",
        ),
        wrapped(
            "- **They also say how much LoCA retains, where the energy is spread over the "
            "frequencies of both axes** as evenly as random singular vectors spread it, up to a "
            f"factor of {UNEVEN}: to {100 * errors[even & chosen].max():.1f} points in "
            f"{(even & chosen & is_change & first).sum()} of {(chosen & is_change & first).sum()} "
            f"changes and {(even & controls & first).sum()} of {(controls & first).sum()} "
            "controls, on which the limit was chosen, and to "
            f"{100 * errors[even & fresh].max():.1f} points in {(even & fresh & first).sum()} of "
            f"{(fresh & first).sum()} matrices measured afterwards. Elsewhere they are off by up "
            f"to {100 * errors[~even & chosen & is_change].max():.0f} points in a change, "
            f"{100 * errors[~even & controls].max():.0f} in a control.",
            indent="  ",
        ),
        wrapped(
            "- **One network can need several forms.** In the LSTMs LoRA wins in "
            f"{layers['dense_1']['LoRA']} of {sizes['dense_1']} dense layers (and in "
            f"{dense['LoRA']} of {sum(dense.values())} of their weights before) if an index costs "
            f"a number, but in {listed(lora_in_kernels)} of {sizes['lstm_1']} input kernels by the "
            f"three accountings. {layers['lstm_1']['LoCA']} of the {loca} matrices in which LoCA "
            "wins are input kernels.",
            indent="  ",
        ),
        wrapped(
            "- **Storing both sides in bfloat16 changes the winner in "
            f"{differ.sum()} of {len(differ)} matrices**, {differ[['mhc-1', 'mhc-2']].sum()} of "
            "them of LSTMs, where some steps are small; plain entries win "
            f"{(sides['bfloat16'][differ] == 'entries').sum()} of them then.",
            indent="  ",
        ),
    ]


def listed(values: list[str]) -> str:
    """One value for each accounting: a, b and c."""
    return f"{values[0]}, {values[1]} and {values[2]}"


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph of the page."""
    return textwrap.fill(
        text, 128, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )

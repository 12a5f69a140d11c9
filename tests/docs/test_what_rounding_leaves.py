"""Numbers of the page on rounding are those of the stored tables."""

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "what-rounding-leaves.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
GROUPS = {"up to 0.25": (0, 0.25), "0.25 to 0.5": (0.25, 0.5)}


def stored(name):
    return pd.read_parquet(ROOT / "figures" / "unmerged" / f"unmerged-{name}.parquet")


def lines():
    """The rows of the table of merges."""
    table = stored("adapters")
    for merge, rows in table.groupby("merge", sort=False):
        for group, (low, high) in GROUPS.items():
            part = rows[(rows["unknowns"] > low) & (rows["unknowns"] <= high)]
            claimed = part[part["found_rank"].notna()]
            right = claimed[claimed["found_rank"] == claimed["rank"]]
            ratio = (claimed["error"] / claimed["error_svd"]).median()
            same, svd = claimed["identical"].mean(), claimed["identical_svd"].mean()
            yield (
                f"| {merge} | {group} | {len(part)} | {len(right)} | {len(claimed) - len(right)} "
                f"| 1/{1 / ratio:.0f} | {same:.2%} | {svd:.1%} |"
            )


def test_the_table_is_that_of_the_stored_rows():
    for line in lines():
        assert line in PAGE


def test_nothing_is_claimed_of_other_changes():
    trained, published = stored("negatives"), stored("published")
    published = published[published["name"].notna()]
    assert not trained["form"].notna().any()
    assert not published["form"].notna().any()
    counts = [trained["kind"].str.startswith(kind).sum() for kind in ("all", "DoRA", "SHiRA")]
    assert sum(counts) == len(trained)
    assert (
        f"No adapter was claimed of {counts[0]} matrices of models whose weights were all" in WORDS
    )
    said = f"of {counts[1]} of DoRA, {counts[2]} of SHiRA, and {len(published)} of [published"
    assert said in WORDS


def test_the_answer_is_that_of_the_stored_rows():
    rows = stored("adapters")
    others = rows[rows["unknowns"] > 0.5]
    assert f"Above 0.5 there are {len(others)} layers, without a claim." in WORDS
    assert others["found_rank"].isna().all()
    rows = rows[rows["unknowns"] <= 0.5]
    right = int((rows["found_rank"] == rows["rank"]).sum())
    assert f"in {right:,} of {len(rows):,} layers" in WORDS
    with_rank = rows[rows["found_rank"].notna()]
    ratio = (with_rank["error"] / with_rank["error_svd"]).median()
    assert f"with 1/{1 / ratio:.0f} of the error of a truncated SVD in the median" in WORDS
    all_others = pd.concat([stored("negatives"), stored("published")])
    all_others = all_others[all_others["name"].notna()]
    claimed = int(all_others["form"].notna().sum())
    assert f"claimed of {claimed or 'none'} of {len(all_others):,} changes" in WORDS


def test_where_it_fails_is_what_the_stored_rows_say():
    rows = stored("adapters")
    rows = rows[rows["unknowns"] <= 0.5]
    with_rank = rows[rows["found_rank"].notna()]
    wrong = with_rank[with_rank["found_rank"] != with_rank["rank"]]
    assert f"All {len(wrong)} wrong ranks but two, 17 for 16," in WORDS
    small = wrong[wrong["rank"] != 32]
    assert list(zip(small["rank"], small["found_rank"], strict=True)) == [(16, 17)] * 2
    large = wrong[wrong["rank"] == 32]
    assert (len(large), set(large["dtype"])) == (len(wrong) - 2, {"bfloat16"})
    twice = large["recipe"] == "rounded twice"
    near, far = large.loc[~twice, "found_rank"], large.loc[twice, "found_rank"]
    ends = [f"{part.min():.0f} to {part.max():.0f}" for part in (near, far)]
    smallest, low, high = (
        large.loc[~twice, "identical"].min(),
        large.loc[twice, "identical"].min(),
        large.loc[twice, "identical"].max(),
    )
    said = f"{(~twice).sum()} are {ends[0]}, and a merge still gives at least {smallest:.1%}"
    assert said in WORDS
    said = f"{twice.sum()} are {ends[1]} as `rounded twice`, and it gives {low:.0%} to {high:.0%}"
    assert said in WORDS
    none = rows[rows["found_rank"].isna()]
    half = (none["dtype"] == "float16").sum()
    assert f"{len(none)} layers of rank 32, {half} of them in float16, get no claim" in WORDS
    assert set(none["rank"]) == {32}


def rounded_adapters():
    """Adapters of published fine-tunes, of merges at their own size, and at other sizes."""
    table = pd.read_parquet(ROOT / "figures" / "published" / "rounded-adapters.parquet")
    table = table.assign(gain=table["retained"] - table["retained_nearest"])
    merged = table["study"].str.extract(r"^merged \w+, r = (\d+)$")[0].astype(float)
    is_right = merged == table["r"]
    return table[merged.isna()], table[is_right], table[merged.notna() & ~is_right]


def test_sentences_on_extract_are_those_of_the_stored_rows():
    published, right, other = rounded_adapters()
    best = published.loc[published["gain"].idxmax()]
    low, high = published["gain"].min(), published["gain"].max()
    before, after = best["retained_nearest"], best["retained"]
    few = right[right["unknowns"] <= 0.25]
    lost = (1 - few["retained"]) / (1 - few["retained_nearest"])
    assert tuple(best[["study", "format", "scale"]]) == ("rxnfp-10k", "bfloat16", 0.01)
    assert published.loc[published["method"] == "loca", "gain"].max() == 0
    for sentence in (
        f"Of {len(published):,} adapters {(published['steps'] > 0).sum()} are moved.",
        (
            f"The largest loss of retained energy is {-100 * low:.2f} points; the largest gain "
            f"is {100 * high:.1f} points"
        ),
        (
            f"where {best['changed']:.0%} of the entries changed: {before:.1%} of the change "
            f"become {after:.1%}"
        ),
        (
            f"falls to {lost.median():.1%} of before in the median, to {lost.max():.0%} at "
            f"worst ({len(few)} adapters"
        ),
        f"retain {100 * other['gain'].min():.0f} to {100 * other['gain'].max():.0f} points more",
    ):
        assert sentence in WORDS

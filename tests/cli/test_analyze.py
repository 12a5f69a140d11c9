"""``loca-theory analyze`` as a user meets it."""

import json

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file


@pytest.fixture
def pair(here):
    source = torch.Generator().manual_seed(0)
    base = {
        f"layers.{i}.{kind}.weight": torch.randn(48, 48, generator=source)
        for i in range(2) for kind in ("q_proj", "v_proj")
    }  # fmt: skip
    base["norm.weight"] = torch.ones(48)
    u, v = (torch.randn(48, 1, generator=source) for _ in range(2))
    tuned = {
        name: value + 0.01 * u @ v.T if value.ndim == 2 else value for name, value in base.items()
    }
    tuned = {
        name: value + 0.002 * torch.randn(value.shape, generator=source)
        for name, value in tuned.items()
    }
    for name, content in (("base", base), ("tuned", tuned)):
        save_file(content, here / f"{name}.safetensors")
    return "base.safetensors", "tuned.safetensors"


def test_json_has_the_rows_and_why_the_rest_is_missing(cli, pair):
    done = cli("analyze", *pair, "--r", "2,4", "--format", "json", "--quiet")
    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    assert set(document) == {"rows", "allocation", "comparisons", "bits", "skipped",
                             "summary", "manifest"}  # fmt: skip
    row = document["rows"][0]
    assert {"name", "shape", "dtype", "sigma", "zero_fraction", "excess_kurtosis", "tv", "tv_low",
            "tv_high", "tv_p_value", "tv_p_value_as_printed", "mp_sigma", "mp_distance",
            "outlier_mass", "spikes", "stable_rank", "effective_rank", "rank_50", "rank_90",
            "rank_99", "relative_norm", "errors"} <= set(row)  # fmt: skip
    assert set(row["errors"][0]) == {
        "r", "method", "error", "iid_error", "shuffled_error", "spectral_error",
        "inputs_shuffled_error", "outputs_shuffled_error", "axes_shuffled_error", "free_error",
        "bits_error",
    }  # fmt: skip
    assert row["spikes"] == 1
    assert document["skipped"] == [
        {"name": "norm.weight", "tuned": "tuned", "reason": "not a matrix: 1 dimensions"}
    ]
    assert "At the budget of r = 4, LoRA retains" in document["summary"]["verdict"]


def test_people_get_a_table_a_verdict_and_a_configuration(cli, pair):
    done = cli("analyze", *pair, "--r", "2", "--quiet")
    assert done.code == 0
    for text in (
        "Every increment",
        "Totals by kind",
        "Totals by layer",
        "LoraConfig(\n    r=2,",
        "Left out: 1",
    ):
        assert text in done.out


def test_unrelated_checkpoints_are_said_to_be_first(cli, here, pair):
    source = torch.Generator().manual_seed(1)
    other = {
        name: torch.randn(one.shape, generator=source)
        for name, one in load_file(here / pair[0]).items()
    }
    save_file(other, here / "other.safetensors")
    arguments = ("analyze", pair[0], "other.safetensors", "--r", "2", "--quiet")
    text = "The weights of the base and of the fine-tune are unrelated: the median cosine"
    done = cli(*arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(text)
    done = cli(*arguments, "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["summary"]["warnings"][0].startswith(text)
    done = cli(*arguments, "--format", "csv")
    assert done.code == 0
    assert done.err.startswith(f"note: {text}")
    assert "weights_cosine" in done.out.splitlines()[0].split(",")


def test_what_was_too_large_is_said_with_the_option(cli, here, pair):
    content = load_file(here / "tuned.safetensors")
    for name in pair:
        save_file({**load_file(here / name), "wide.weight": content["norm.weight"].outer(
            torch.randn(60, generator=torch.Generator().manual_seed(0)))}, here / name)  # fmt: skip
    done = cli(
        "analyze", *pair, "--r", "2", "--max-size", "2500", "--quiet", "--include", "wide|0.q"
    )
    assert "larger than --max-size 2500: wide" in done.out


def test_the_demonstration_needs_no_checkpoint(cli):
    done = cli("analyze", "--demo", "--include", "0.*q_proj", "--r", "4", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert "The increment is" in done.out
    assert "target_modules=['layers.0.attention.q_proj']" in done.out


def test_out_stores_tables_figures_and_a_page_that_needs_nothing_else(cli, here, pair):
    for name in pair:
        content = load_file(here / name)
        hostile = "layers.0.<script>alert(1)</script>.q_proj.weight"
        content[hostile] = content.pop("layers.0.q_proj.weight")
        save_file(content, here / name)
    done = cli("analyze", *pair, "--r", "2,4", "--out", "report", "--pictures", "--format", "csv")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 5
    folder = here / "report"
    assert len(pd.read_parquet(folder / "analyze-matrices.parquet")) == 4
    assert len(pd.read_parquet(folder / "analyze-errors.parquet")) == 4 * 2 * 7
    shown = pd.read_parquet(folder / "analyze-figure_data.parquet")
    assert list(pd.read_parquet(folder / "analyze-skipped.parquet")["name"]) == ["norm.weight"]
    assert list(shown["quantity"]) == ["entries", "increment", "weights"] * 2
    for name in ("entries", "p-values", "spectra", "weights", "errors", "phase", "methods"):
        assert (folder / f"analyze-{name}.png").exists()
    page = (folder / "analyze.html").read_text()
    assert "default-src 'none'" in page, "the browser refuses every request"
    assert "<script>alert" not in page, "names from a file are escaped"
    assert "&lt;script&gt;alert" in page


def test_pictures_are_drawn_on_request_only(cli, here, pair):
    assert cli("analyze", *pair, "--r", "2", "--include", "0.q", "--out", "o", "-q").code == 0
    assert (here / "o" / "analyze.html").exists()
    assert not list((here / "o").glob("*.png"))
    done = cli("analyze", *pair, "--pictures")
    assert (done.code, done.out) == (2, "")
    assert "--pictures needs a folder to write to; add --out DIR" in done.err


def test_damage_is_exit_code_4_with_the_rest_done(cli, here, pair):
    content = load_file(here / "tuned.safetensors")
    content["layers.1.q_proj.weight"][0, 0] = float("inf")
    save_file(content, here / "tuned.safetensors")
    done = cli("analyze", *pair, "--r", "2", "--format", "json", "--quiet")
    assert done.code == 4
    assert done.err == (
        "note: 1 matrix is damaged and was left out, the first: layers.1.q_proj.weight: not "
        "finite: 1 of 2304 entries are NaN or infinite\n"
    )
    document = json.loads(done.out)
    assert len(document["rows"]) == 3
    assert [one["name"] for one in document["skipped"]] == ["norm.weight", "layers.1.q_proj.weight"]


def test_strange_but_finite_increments_have_rows_tables_figures_and_a_page(cli, here):
    """Squares beyond float64, no bulk, a fine-tune to zero: JSON has no word for infinity."""
    source = torch.Generator().manual_seed(0)
    normal = torch.randn(24, 20, generator=source)
    tuned = {
        "h.0.q_proj.weight": torch.outer(normal[:, 0], normal[0]),
        "h.0.v_proj.weight": torch.zeros(24, 20, dtype=torch.float64),
        "h.0.k_proj.weight": 1e30 * normal,
        "h.0.o_proj.weight": 1e-40 * normal,
    }
    base = {name: torch.zeros_like(value) for name, value in tuned.items()}
    base["h.0.v_proj.weight"] = 1e300 * normal.double()
    save_file(base, here / "a.safetensors")
    save_file(tuned, here / "b.safetensors")
    arguments = ("analyze", "a.safetensors", "b.safetensors", "--r", "2", "--quiet")
    done = cli(*arguments, "--format", "json", "--out", "o", "--pictures")
    assert (done.code, done.err) == (0, "")
    rows = {row["name"]: row for row in json.loads(done.out)["rows"]}
    assert rows["h.0.q_proj.weight"]["mp_sigma"] is None
    assert rows["h.0.v_proj.weight"]["energy"] is None
    assert rows["h.0.v_proj.weight"]["sigma"] > 1e299
    page = (here / "o" / "analyze.html").read_text()
    assert "the spectrum has no bulk" in page
    assert (here / "o" / "analyze-spectra.png").exists()
    table = cli(*arguments)
    assert table.code == 0
    assert "not finite" not in table.out


def test_identical_checkpoints_are_said_to_be(cli, pair):
    done = cli("analyze", pair[0], pair[0], "--r", "2", "--quiet")
    assert done.code == 0
    assert "No matrix could be analysed." in done.out
    assert "unchanged" in done.out


def test_all_methods_are_those_that_approximate_a_matrix(cli, pair):
    done = cli("analyze", *pair, "--r", "2", "--methods", "all", "--format", "json", "--quiet")
    assert (done.code, done.err) == (0, "")
    methods = json.loads(done.out)["manifest"]["grid"]["methods"]
    assert {"R", "D", "S", "DoRA", "LoKr", "C3A"} <= set(methods)
    assert not {"U", "M1", "M2", "RD"} & set(methods), "only formulas"

"""Checks that read stored tables: what they measure, and what they refuse."""

import numpy as np
import pandas as pd
import pytest

from loca_theory.claims.checks import empirical, fine_tuned
from loca_theory.errors import ResourceError

VERDICT = {
    "comparison": "loca-over-random", "measure": "accuracy", "margin": 1.0, "tasks": 6, "seeds": 64,
    "pairs": 384, "verdict": "equivalent within a margin", "difference": 0.2,
    "standard_error": 0.1, "low": -0.3, "high": 0.7, "within": 0.7, "fixed_low": 0.05,
    "fixed_high": 0.35, "kinds_low": None, "kinds_high": None,
}  # fmt: skip


def test_the_verdict_of_the_design_is_read_with_its_bounds(tmp_path):
    rows = [VERDICT, {**VERDICT, "comparison": "other", "difference": 9.0, "low": 8.0}]
    pd.DataFrame(rows).to_parquet(tmp_path / "verdicts.parquet")
    given = {"table": "verdicts", "comparison": "loca-over-random"}
    found, note, verdict = empirical.designed(results=tmp_path, **given)
    assert verdict == "equivalent within a margin"
    (part,) = found.values()
    assert (part.value, part.bounds) == (0.2, (-0.3, 0.7))
    assert "6 tasks × 64 seeds; margin 1 points" in note
    assert note.endswith("+0.05 to +0.35.")


def test_bounds_for_other_kinds_of_tasks_are_noted(tmp_path):
    pd.DataFrame([{**VERDICT, "kinds_low": -1.0, "kinds_high": 2.0}]).to_parquet(
        tmp_path / "verdicts.parquet"
    )
    given = {"table": "verdicts", "comparison": "loca-over-random"}
    note = empirical.designed(results=tmp_path, **given)[1]
    assert "for other kinds of tasks -1.00 to +2.00." in note


def test_a_comparison_without_its_runs_has_no_verdict(tmp_path):
    numbers = ("difference", "standard_error", "low", "high", "within", "fixed_low", "fixed_high")
    row = {**VERDICT, "verdict": None, "pairs": 17, **dict.fromkeys(numbers)}
    pd.DataFrame([row, {**VERDICT, "comparison": "other"}]).to_parquet(
        tmp_path / "verdicts.parquet"
    )
    given = {"table": "verdicts", "comparison": "loca-over-random"}
    found = empirical.designed(results=tmp_path, **given)
    assert found == ({}, "Of 6 tasks × 64 seeds, 17 pairs of runs are there.")
    assert empirical.designed(results=tmp_path, table="verdicts", comparison="x")[0] == {}
    assert empirical.designed(results=None, **given)[0] == {}


def test_tables_that_disagree_are_refused(tmp_path):
    for name, speed in (("a", 0.9), ("b", 1.0)):
        row = {"model": "m", "rival": "LoCA dense", "of_lora": speed}
        pd.DataFrame([row]).to_parquet(tmp_path / f"complexity-{name}.parquet")
    with pytest.raises(ResourceError, match=r"disagree on the run m, LoCA dense; give a folder"):
        empirical.speed(results=tmp_path, table="complexity-*", rival="LoCA dense")


def test_the_slowest_model_decides_on_speed(tmp_path):
    rows = {"model": ["a", "b", "b"], "rival": ["LoCA dense", "LoCA dense", "LoRA"],
            "of_lora": [0.9, 0.6, 1.0]}  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "complexity.parquet")
    found = empirical.speed(results=tmp_path, table="complexity", rival="LoCA dense")
    assert found == (0.6, "Models measured: 2.")
    assert empirical.speed(results=tmp_path, table="complexity", rival="none")[0] == {}


def test_the_median_of_an_analysis_leaves_embeddings_out(tmp_path):
    values = [0.5, *np.linspace(0.01, 0.03, 41)]
    kinds = ["embedding", *["attention output"] * 41]
    names = [f"m{i}" for i in range(42)]
    table = pd.DataFrame({"name": names, "kind": kinds, "tv": values})
    table.to_parquet(tmp_path / "analyze-matrices.parquet")
    given = {"results": tmp_path, "table": "analyze-matrices", "column": "tv"}
    assert fine_tuned.increments(**given)[0] == {"median tv": pytest.approx(0.02)}
    found = fine_tuned.increments(**given, is_complement=True)[0]
    assert found == {"median tv": pytest.approx(0.98)}


def spectra(folder, matrices):
    rows = [
        {"name": name, "quantity": quantity, "p": len(w), "q": len(w.T), "sigma": 1.0,
         "values": np.square(np.linalg.svd(w, compute_uv=False)).tolist()}
        for name, w in matrices.items()
        for quantity in ("increment", "weights")
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "analyze-figure_data.parquet")


def test_spectra_of_weights_are_compared_with_the_law(tmp_path):
    rng = np.random.default_rng(0)
    free = rng.standard_normal((300, 200))
    bent = free * np.linspace(0.1, 3, 200)
    spectra(tmp_path, {"free": free, "bent": bent})
    values = fine_tuned.weights_spectrum(results=tmp_path, table="analyze-figure_data")
    assert values["free"] < 0.02
    assert values["bent"] > 0.1
    nothing = fine_tuned.weights_spectrum(results=tmp_path, table="none")
    assert nothing[0] == {}


def test_pictures_show_normality(tmp_path):
    rng = np.random.default_rng(1)
    block = rng.standard_normal((40, 40)) ** 3
    rows = [
        {"task": "t", "method": "full", "layer": "a", "row": i, "values": row.tolist()}
        for i, row in enumerate(block)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "visualization_W.parquet")
    found = fine_tuned.picture_normality(rng=rng, results=tmp_path, table="visualization_W")
    (part,) = found.values()
    assert part.value - 5 * part.standard_error > 0.02

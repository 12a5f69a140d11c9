"""Checks that read stored tables: what they measure, and what they refuse."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest

from loca_theory.claims import Setting
from loca_theory.claims.checks import empirical, fine_tuned
from loca_theory.claims.measurement import Measurement, Tier
from loca_theory.claims.rules import Rule, Verdict, decide
from loca_theory.errors import ResourceError


def setting(results):
    return Setting(Tier.QUICK, np.random.default_rng(0), results)


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
    found = empirical.designed(setting(tmp_path), **given)
    decision = decide(Rule("designed"), found, error_rate=1e-9, assumes=False)
    assert decision.verdict is Verdict.EQUIVALENT
    assert (decision.low, decision.high) == (-0.3, 0.7)
    assert decision.estimate.value == 0.2
    assert "6 tasks × 64 seeds; margin 1 points" in found.note
    assert found.note.endswith("+0.05 to +0.35.")
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_bounds_for_other_kinds_of_tasks_are_noted(tmp_path):
    pd.DataFrame([{**VERDICT, "kinds_low": -1.0, "kinds_high": 2.0}]).to_parquet(
        tmp_path / "verdicts.parquet"
    )
    found = empirical.designed(setting(tmp_path), table="verdicts", comparison="loca-over-random")
    assert "for other kinds of tasks -1.00 to +2.00." in found.note


def test_a_comparison_without_its_runs_has_no_verdict(tmp_path):
    numbers = ("difference", "standard_error", "low", "high", "within", "fixed_low", "fixed_high")
    row = {**VERDICT, "verdict": None, "pairs": 17, **dict.fromkeys(numbers)}
    pd.DataFrame([row, {**VERDICT, "comparison": "other"}]).to_parquet(
        tmp_path / "verdicts.parquet"
    )
    given = {"table": "verdicts", "comparison": "loca-over-random"}
    found = empirical.designed(setting(tmp_path), **given)
    assert found.estimates == ()
    assert found.note == "Of 6 tasks × 64 seeds, 17 pairs of runs are there."
    assert empirical.designed(setting(tmp_path), table="verdicts", comparison="x").estimates == ()
    assert empirical.designed(setting(None), **given).estimates == ()


def test_tables_that_disagree_are_refused(tmp_path):
    for name, speed in (("a", 0.9), ("b", 1.0)):
        row = {"model": "m", "rival": "LoCA dense", "of_lora": speed}
        pd.DataFrame([row]).to_parquet(tmp_path / f"complexity-{name}.parquet")
    with pytest.raises(ResourceError, match=r"disagree on the run m, LoCA dense; give a folder"):
        empirical.speed(setting(tmp_path), table="complexity-*", rival="LoCA dense")


def test_the_slowest_model_decides_on_speed(tmp_path):
    rows = {"model": ["a", "b", "b"], "rival": ["LoCA dense", "LoCA dense", "LoRA"],
            "of_lora": [0.9, 0.6, 1.0]}  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "complexity.parquet")
    found = empirical.speed(setting(tmp_path), table="complexity", rival="LoCA dense")
    assert [part.value for part in found.estimates] == [0.6]
    assert empirical.speed(setting(tmp_path), table="complexity", rival="none").estimates == ()


def test_the_median_of_an_analysis_leaves_embeddings_out(tmp_path):
    values = [0.5, *np.linspace(0.01, 0.03, 41)]
    kinds = ["embedding", *["attention output"] * 41]
    names = [f"m{i}" for i in range(42)]
    table = pd.DataFrame({"name": names, "kind": kinds, "tv": values})
    table.to_parquet(tmp_path / "analyze-matrices.parquet")
    median = partial(
        fine_tuned.increments, setting(tmp_path), table="analyze-matrices", column="tv"
    )
    (part,) = median().estimates
    assert (part.value, part.is_random) == (pytest.approx(0.02), False)
    (part,) = median(is_complement=True).estimates
    assert part.value == pytest.approx(0.98)


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
    found = fine_tuned.weights_spectrum(setting(tmp_path), table="analyze-figure_data")
    values = {part.name: part.value for part in found.estimates}
    assert values["free"] < 0.02
    assert values["bent"] > 0.1
    empty = setting(tmp_path / "nothing")
    assert fine_tuned.weights_spectrum(empty, table="analyze-figure_data").estimates == ()


def test_pictures_show_normality(tmp_path):
    rng = np.random.default_rng(1)
    block = rng.standard_normal((40, 40)) ** 3
    rows = [
        {"task": "t", "method": "full", "layer": "a", "row": i, "values": row.tolist()}
        for i, row in enumerate(block)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "visualization_W.parquet")
    (part,) = fine_tuned.picture_normality(setting(tmp_path), table="visualization_W").estimates
    assert part.value - 5 * part.standard_error > 0.02

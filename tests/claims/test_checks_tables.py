"""Checks that read stored tables: what they measure, and what they refuse."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from loca_theory.claims import Setting, Tier
from loca_theory.claims.checks import empirical, fine_tuned
from loca_theory.errors import ResourceError


def setting(results):
    return Setting(Tier.QUICK, np.random.default_rng(0), results)


def write(folder, metrics, measure="accuracy", name="comparison-made-up", r=4.0):
    """A table of runs; None stands for one that diverged."""
    rows = [
        {"task": "t", "method": method, "r": r, "seed": seed, "measure": measure,
         "metric": value, "diverged": value is None}
        for method, values in metrics.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")


def advantage(folder, **options):
    given = {"table": "comparison-*", "method": "loca", "over": "lora", **options}
    return empirical.advantage(setting(folder), **given)


def test_a_paired_difference_is_read_from_tables(tmp_path):
    write(tmp_path, {"loca": [0.9, 0.8, 0.7], "lora": [0.8, 0.75, 0.65]})
    (part,) = advantage(tmp_path).estimates
    gaps = np.array([0.1, 0.05, 0.05]) / np.mean([0.8, 0.75, 0.65])
    assert part.value == pytest.approx(gaps.mean())
    assert part.standard_error == pytest.approx(gaps.std(ddof=1) / np.sqrt(3))
    assert part.n == 3


def test_a_run_that_diverged_counts_as_the_worst(tmp_path):
    """Left out, the method would lead by 0.1; its one failure costs it as much as the worst run."""
    write(tmp_path, {"loca": [0.9, 0.9, None], "lora": [0.8, 0.8, 0.8], "full": [0.2, 0.9, 0.9]})
    found = advantage(tmp_path)
    assert found.estimates[0].value == pytest.approx((0.1 + 0.1 - 0.6) / 3 / 0.8)
    assert "loca: 1 of 3" in found.note


def test_of_a_loss_less_is_better(tmp_path):
    write(tmp_path, {"loca": [1.0, 1.1, None], "lora": [2.0, 2.3, 2.0]}, "bits per byte")
    assert advantage(tmp_path).estimates[0].value == pytest.approx((1.0 + 1.2 - 0.3) / 3 / 2.1)


def test_tables_that_disagree_are_refused(tmp_path):
    write(tmp_path, {"loca": [0.9, 0.8], "lora": [0.8, 0.7]}, name="comparison-a")
    write(tmp_path, {"loca": [0.9, 0.8], "lora": [0.8, 0.7]}, name="comparison-b")
    assert advantage(tmp_path).estimates[0].n == 2
    write(tmp_path, {"loca": [0.9, 0.85], "lora": [0.8, 0.7]}, name="comparison-c")
    with pytest.raises(ResourceError, match=r"disagree on the run t, loca, 4\.0, 1; give a folder"):
        advantage(tmp_path)


def test_the_smallest_budgets_alone_are_compared(tmp_path):
    write(tmp_path, {"loca": [0.9, 0.9], "lora": [0.6, 0.6]}, name="comparison-1", r=1.0)
    write(tmp_path, {"loca": [0.1, 0.1], "lora": [0.6, 0.6]}, name="comparison-8", r=8.0)
    assert advantage(tmp_path, smallest=1).estimates[0].value == pytest.approx(0.5)
    assert advantage(tmp_path).estimates[0].value == pytest.approx((0.5 - 5 / 6) / 2)


def test_fewer_parameters_are_compared_with_more(tmp_path):
    write(tmp_path, {"loca": [0.5, 0.6], "lora": [0.1, 0.1]}, name="budgets-1", r=1.0)
    write(tmp_path, {"loca": [0.9, 0.9], "lora": [0.5, 0.5]}, name="budgets-8", r=8.0)
    (part,) = empirical.with_fewer(
        setting(tmp_path), table="budgets*", method="loca", r=1, over="lora", over_r=8
    ).estimates
    assert part.value == pytest.approx(0.1)


def test_settings_within_a_range_are_compared_with_those_outside(tmp_path):
    rows = [
        {"task": "t", "method": method, "seed": seed, "measure": "accuracy", "diverged": False,
         "setting": setting, "value": value, "metric": good if 1 <= value <= 2 else 0.5}
        for method, good in (("loca", 0.6 + 0.01), ("loca-reselect", 0.1))
        for seed in range(3)
        for setting, values in (("scaling", (0.5, 1.0, 2.0, 4.0)), ("rate", (1.0, 9.0)))
        for value in values
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "sensitivity.parquet")
    found = empirical.best_setting(
        setting(tmp_path), table="sensitivity*", column="scaling", low=1.0, high=2.0
    )
    assert found.estimates[0].value == pytest.approx(0.11 / 0.5)


def test_the_slowest_model_decides_on_speed(tmp_path):
    rows = {"model": ["a", "b", "b"], "rival": ["LoCA dense", "LoCA dense", "LoRA"],
            "of_lora": [0.9, 0.6, 1.0]}  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "complexity.parquet")
    found = empirical.speed(setting(tmp_path), table="complexity", rival="LoCA dense")
    assert [part.value for part in found.estimates] == [0.6]
    assert empirical.speed(setting(tmp_path), table="complexity", rival="none").estimates == ()


def test_the_course_of_training_is_read_step_by_step(tmp_path):
    losses = {("loca", 0): [4, 3, 2], ("loca", 1): [4, 5, 1], ("loca-v1", 0): [4, 4, 4],
              ("loca-v1", 1): [4, 3, 2]}  # fmt: skip
    rows = [
        {"task": "t", "method": method, "seed": seed, "step": step, "validation_loss": float(loss)}
        for (method, seed), values in losses.items()
        for step, loss in reversed(list(enumerate(values)))
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "training_process.parquet")
    given = {"table": "training_process", "method": "loca"}
    assert empirical.training(setting(tmp_path), **given).estimates[0].value == pytest.approx(0.75)
    (part,) = empirical.training(setting(tmp_path), over="loca-v1", **given).estimates
    assert part.value == pytest.approx(0.5)


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


def test_pictures_show_rank_and_normality(tmp_path):
    rng = np.random.default_rng(1)
    blocks = {
        "loca": rng.standard_normal((40, 40)),
        "lora": np.outer(rng.standard_normal(40), rng.standard_normal(40)),
        "full": rng.standard_normal((40, 40)) ** 3,
    }
    rows = [
        {"task": "t", "method": method, "layer": "a", "row": i, "values": row.tolist()}
        for method, block in blocks.items()
        for i, row in enumerate(block)
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "visualization_W.parquet")
    (part,) = fine_tuned.rank_advantage(setting(tmp_path), table="visualization_W").estimates
    assert 20 < part.value < 39  # of a full rank of 40 less that of an outer product, 1
    (part,) = fine_tuned.picture_normality(setting(tmp_path), table="visualization_W").estimates
    assert part.value - 5 * part.standard_error > 0.02

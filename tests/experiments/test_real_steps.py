"""How far real trainings move weights: the stored table, and the page that shows it."""

from pathlib import Path

import pandas as pd
from click.testing import CliRunner

from experiments.peft_benchmark import real_steps

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "compare-at-one-step.md"


def test_the_page_shows_the_stored_table():
    rows = pd.read_parquet(real_steps.STORED / f"{real_steps.NAME}.parquet")
    ratios = (rows["size"] / rows["predicted"]).groupby([rows["adapter"], rows["steps"]]).mean()
    page = PAGE.read_text(encoding="utf-8")
    assert set(rows["adapter"]) == set(real_steps.adapters())
    assert f"| after | {' | '.join(real_steps.adapters())} |" in page
    for steps, shown in ((1, "1 step"), (10, "10 steps"), (100, "100 steps")):
        cells = [f"{ratios[name, steps]:.1f}" for name in real_steps.adapters()]
        assert f"| {shown} | {' | '.join(cells)} |" in page
    ahead = ratios["VeRA", 100] / ratios["FourierFT", 100]
    assert f"VeRA has moved {ahead:.1f} times as far as FourierFT" in page
    assert min(ratios["LoRA", 100], ratios["VeRA", 100]) > max(
        ratios[name, 100] for name in ("LoCA", "FourierFT", "WaveFT", "SHiRA")
    )


def test_a_training_is_stored_once(tmp_path, monkeypatch):
    lora = real_steps.adapters()["LoRA"]
    trained = []

    def sizes(_config, rate, _train, seed):
        trained.append((rate, seed))
        yield from ((1, 0.1), (10, 0.4))

    monkeypatch.setattr(real_steps, "adapters", lambda: {"LoRA": lora})
    monkeypatch.setattr(real_steps, "splits", lambda *_: ([], []))
    monkeypatch.setattr(real_steps, "sizes", sizes)
    for seeds in (1, 2, 2):
        command = ["--out", str(tmp_path), "--seeds", str(seeds)]
        assert CliRunner().invoke(real_steps.main, command).exit_code == 0
    assert [seed for _, seed in trained] == [0, 1]
    rows = pd.read_parquet(tmp_path / f"{real_steps.NAME}.parquet")
    assert rows[["seed", "steps"]].to_numpy().tolist() == [[0, 1], [0, 10], [1, 1], [1, 10]]

"""The table of equivalent learning rates: each row by the library's own function, and resumable."""

import pandas as pd
import peft
import pytest
from click.testing import CliRunner

from experiments.peft_benchmark import equivalents
from loca_theory.adapters import equivalent_lr, first_step

SHAPE = (48, 64)


@pytest.fixture
def two_tuners(monkeypatch):
    """LoRA, and a tuner that changes no weight, at a small shape."""
    chosen = {"LORA": peft.LoraConfig, "BEFT": peft.BeftConfig}
    monkeypatch.setattr(equivalents, "tuners", lambda: chosen)
    monkeypatch.setattr(equivalents, "SHAPES", (SHAPE,))


@pytest.mark.parametrize("name", ["FOURIERFT", "OFT"], ids=["linear", "rotates"])
def test_a_row_has_the_rate_that_the_library_finds(name, monkeypatch):
    options = {"FOURIERFT": {"n_frequency": 200}, "OFT": {"oft_block_size": 8}}[name]
    config_type = equivalents.tuners()[name]
    monkeypatch.setattr(equivalents, "tuners", lambda: {name: lambda: config_type(**options)})
    row = equivalents.row_of(name, SHAPE)
    lora = peft.LoraConfig(r=8, lora_alpha=16)
    rate = equivalent_lr(config_type(**options), lora, SHAPE, lr=1e-4, draws=2)
    assert row["equivalent_lr"] == pytest.approx(rate)
    step = first_step(config_type(**options), SHAPE, lr=1e-4, draws=2)
    assert (row["numbers"], row["frobenius"]) == (step.numbers, step.frobenius.value)


def test_rows_are_stored_once_with_a_rate_or_a_reason(two_tuners, tmp_path, monkeypatch):
    assert CliRunner().invoke(equivalents.main, ["--out", str(tmp_path)]).exit_code == 0
    rows = pd.read_parquet(tmp_path / f"{equivalents.NAME}.parquet").set_index("tuner")
    assert rows.loc["LORA", "equivalent_lr"] == pytest.approx(2e-4)
    assert "changes no weight" in rows.loc["BEFT", "reason"]
    monkeypatch.setattr(equivalents, "row_of", None)  # nothing is measured twice
    assert CliRunner().invoke(equivalents.main, ["--out", str(tmp_path)]).exit_code == 0


def test_what_is_not_measured_has_its_reason(monkeypatch):
    monkeypatch.setattr(equivalents, "_step", None)
    row = equivalents.row_of("FROD", (4096, 4096))
    assert row["reason"] == "not measured: a draw takes 55 s of one core"

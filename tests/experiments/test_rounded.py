"""The study of known changes that are rounded."""

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from experiments.figures.rounded import draw_rounded
from experiments.published import rounded, rounded_pairs
from loca_theory.rounding import FORMATS, rounded_change
from loca_theory.transforms import dct2

FORM = FORMATS["bfloat16"]


def test_merges_have_the_rank_the_components_and_the_size_that_they_say():
    for method, rank, base, change in rounded_pairs.merges(0.3, FORM):
        assert torch.equal(base, FORM.round(base))
        step = FORM.steps(base).median()
        assert float(change.abs().median() / step) == pytest.approx(0.3)
        count = (
            torch.linalg.matrix_rank(change)
            if method == "lora"
            else (dct2(change).abs() > 1e-12 * change.norm()).sum()
        )
        assert count == (rank if method == "lora" else rank * rounded_pairs.WIDTH)


@pytest.mark.parametrize("scale", [1.0, 0.03])
def test_rows_compare_adapters_with_the_change_that_was_made(scale):
    torch.manual_seed(0)
    base, left, right = (torch.randn(shape).double() for shape in ((64, 96), (64, 2), (2, 96)))
    change = scale * 0.03 * left @ right
    rows = list(rounded.extracted({rounded.LAYER: base}, {rounded.LAYER: change}, FORM, 2))
    assert [row["method"] for row in rows] == ["lora", "loca"]
    before, after = rounded_pairs.stored(base, change, FORM)
    d = after.double() - before.double()
    u, s, vh = torch.linalg.svd(d)
    nearest = u[:, :2] * s[:2] @ vh[:2]
    lost = float((nearest - change).square().sum() / change.square().sum())
    row = rows[0]
    assert row["retained_nearest"] == pytest.approx(1 - lost, abs=1e-4)
    assert row["changed"] == float((d != 0).double().mean())
    law = rounded_change(FORM, float(change.std()), float(base.std()))
    assert row["changed_law"] == law.changed
    assert row["unknowns"] == pytest.approx(2 * 160 / int((d != 0).sum()))
    if scale == 1:
        assert row["retained"] > row["retained_nearest"]
        assert row["inside"] > row["inside_nearest"]


def test_an_analysis_is_of_the_stored_pair_and_the_truth_of_the_change():
    torch.manual_seed(0)
    base = {"a.weight": torch.randn(64, 48).double()}
    change = {"a.weight": 0.1 * torch.randn(64, 2).double() @ torch.randn(2, 48).double()}
    rows = list(rounded.verdicts(base, change))
    assert len(rows) == len(rounded.FORMAT_NAMES) * len(rounded.SCALES)
    first, last = rows[0], rows[len(rounded.SCALES) - 1]
    assert first["true_winner"] == first["winner"] == "LoRA"
    assert not first["warned"]
    assert last["warned"]
    assert last["changed"] < first["changed"]


def test_the_parts_join_two_tables(tmp_path, monkeypatch):
    def measure(part, _):
        tables = {"adapters": [{"study": part}]}
        return tables if part == rounded.MERGES else {**tables, "verdicts": [{"study": part}]}

    monkeypatch.setattr(rounded, "measure", measure)
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert CliRunner().invoke(rounded.main, arguments).exit_code == 0
    adapters, verdicts = (
        pd.read_parquet(tmp_path / f"rounded-{name}.parquet") for name in ("adapters", "verdicts")
    )
    assert list(adapters["study"]) == list(rounded.PARTS)
    assert list(verdicts["study"]) == list(rounded.EVERY)


def test_the_figure_has_both_errors_of_merges_and_a_point_per_adapter():
    row = {"format": "bfloat16", "method": "lora", "r": 4, "changed": 0.5}
    studies = {"study": ["merged lora, r = 4", "rxnfp"], "scale": [1.0, 0.1]}
    energies = {"retained": [1.0, 0.31], "retained_nearest": [0.9, 0.3]}
    table = pd.DataFrame({**studies, **energies, **row})
    left, right = draw_rounded(table).axes
    drawn = {line.get_label(): line.get_ydata() for line in left.lines}
    assert drawn["r = 4, SVD of what is stored"] == pytest.approx([0.1])
    assert drawn["r = 4, inside its rounding cells"] == pytest.approx([1e-8])
    assert right.lines[1].get_ydata() == pytest.approx([1.0])

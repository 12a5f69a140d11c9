"""``loca-theory unmerge``."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from loca_theory import demo_pair


def pair(folder):
    """A base in bfloat16, and with a matrix of rank 2 added to one of two layers."""
    torch.manual_seed(0)
    base = {f"layers.{i}.q_proj.weight": (0.05 * torch.randn(96, 128)).bfloat16() for i in range(2)}
    changed = dict(base)
    delta = 5e-3 * torch.randn(96, 2) @ torch.randn(2, 128)
    changed["layers.1.q_proj.weight"] = (base["layers.1.q_proj.weight"] + delta).bfloat16()
    for name, tensors in (("base", base), ("merged", changed)):
        save_file(tensors, folder / f"{name}.safetensors")
    return folder / "base.safetensors", folder / "merged.safetensors"


def test_json_has_the_rows_and_the_files_and_people_a_sentence(tmp_path, cli):
    sides = pair(tmp_path)
    done = cli("unmerge", *sides, "--out", tmp_path / "out", "--format", "json")
    document = json.loads(done.out)
    (row,) = document["rows"]
    assert (row["name"], row["rank"]) == ("layers.1.q_proj.weight", 2)
    assert row["identical"] > 0.998 > row["identical_svd"]
    assert any(path.endswith("adapter_model.safetensors") for path in document["files"])
    shown = " ".join(cli("unmerge", *sides, "--out", tmp_path / "out").out.split())
    assert "a change of rank 2 in q_proj of 1 layer, as of a merged LoRA (exact)" in shown
    assert "unchanged: layers.0.q_proj" in shown


def test_the_demo_comes_back_to_the_bit(tmp_path, cli):
    """A LoRA of rank 4 that PEFT trained and merged, in four weights of bfloat16."""
    done = cli("unmerge", "--demo", "--out", tmp_path, "--format", "json")
    document = json.loads(done.out)
    assert [row["rank"] for row in document["rows"]] == [4] * 4
    assert document["identical"] > 0.9999 > 0.9 > document["identical_svd"]
    base, merged = demo_pair(merged=True)
    assert base.name == "before-merge.safetensors"
    sizes = [path.stat().st_size for path in (base, merged)]
    assert max(sizes) < 80_000


@pytest.mark.parametrize("count", [1, 2])
def test_weights_that_are_not_finite_leave_the_run_incomplete(count, tmp_path, cli):
    base, tuned = pair(tmp_path)
    weights = load_file(tuned)
    for name in list(weights)[:count]:
        weights[name][0, 0] = math.nan
    save_file(weights, tuned)
    done = cli("unmerge", base, tuned, "--out", tmp_path / "out")
    assert done.code == 4
    assert f"left out because they are damaged: {count}, the first: " in done.err
    assert "not finite: 1 of " in done.err


def test_models_of_other_shapes_and_of_other_names_are_one_line(tmp_path, cli):
    base, tuned = pair(tmp_path)
    weights = load_file(tuned)
    save_file({name: weight[:, :50].contiguous() for name, weight in weights.items()}, tuned)
    done = cli("unmerge", base, tuned, "--out", tmp_path / "out")
    assert done.code == 2
    assert "pass two checkpoints of the same model, in the same size" in done.err
    assert done.err.strip().count("\n") == 0
    save_file({f"h.{i}.attn.wq": weight for i, weight in enumerate(weights.values())}, tuned)
    done = cli("unmerge", base, tuned, "--out", tmp_path / "out")
    assert done.code == 2
    assert "no tensor name in common (the base has " in done.err
    assert done.err.strip().count("\n") == 0


def test_swapped_sides_are_one_line_and_no_result(tmp_path, cli):
    base, merged = pair(tmp_path)
    done = cli("unmerge", merged, base, "--out", tmp_path / "out")
    assert done.code == 2
    assert done.err.endswith("exchange the two, or leave such layers out with --exclude REGEX\n")
    assert done.err.strip().count("\n") == 0
    assert not (tmp_path / "out" / "unmerge.parquet").exists()

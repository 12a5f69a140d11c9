"""``loca-theory unmerge``."""

import json

import torch
from safetensors.torch import save_file

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
    sizes = [path.stat().st_size for path in demo_pair(merged=True)]
    assert max(sizes) < 80_000

"""``loca-theory unmerge``."""

import json

import torch
from safetensors.torch import save_file


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
    assert "LoRA of rank 2 in q_proj of 1 layer (exact)" in shown
    assert "unchanged: layers.0.q_proj" in shown

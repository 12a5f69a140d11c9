"""Published fine-tunes: what is read of a wheel, and what is measured of an increment."""

import io
import re
import sys
import tomllib
import zipfile

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from experiments.published.__main__ import increments, main, rows, statistics
from experiments.published.hub import PAIRS
from experiments.published.hub import main as hub
from experiments.published.wheels import STUDIES, Fitted, Wheels
from loca_theory.checkpoints import analyze
from loca_theory.errors import InvalidArgumentError


def wheel(folder, name, files):
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def torch_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def matrices(seed=0, shapes=((24, 20), (16, 64))):
    rng = np.random.default_rng(seed)
    return {f"layer.{i}.weight": torch.from_numpy(rng.normal(size=one)).float()
            for i, one in enumerate(shapes)}  # fmt: skip


def test_what_is_retained_is_what_an_analysis_says():
    base, change = matrices(), matrices(1)
    found = analyze(base, {k: base[k] + change[k] for k in base}, ranks=[2, 4], methods=["F2"])
    expected, compared = {(one.name, one.r, one.method): one for one in found.errors}, set()
    for name, delta in change.items():
        for row in rows(delta, np.random.default_rng(0)):
            one = expected.get((name, row["r"], row["method"]))
            if one and row["accounting"] == "paper" and row["predicted"] is not None:
                assert row["retained"] == pytest.approx(1 - one.error, abs=1e-5)
                assert row["predicted"] == pytest.approx(1 - one.spectral_error, abs=1e-5)
                compared.add(one.method)
    assert compared == {"R", "D", "S", "F2"}


def test_a_smooth_axis_is_lost_when_it_is_shuffled_and_a_mean_is_not():
    noise = np.random.default_rng(2).normal(size=(2, 48, 40))
    parts = {"smooth": np.cumsum(noise[0], axis=1), "mean": 5 * noise[0][:, :1]}
    found = {}
    for name, part in parts.items():
        for row in rows(torch.from_numpy(part + noise[1]), np.random.default_rng(0)):
            if (row["r"], row["accounting"]) == (2, "paper"):
                found[name, row["method"]] = row["retained"]
    assert found["smooth", "D"] - found["smooth", "D, inputs shuffled"] > 0.1
    assert abs(found["mean", "D"] - found["mean", "D, inputs shuffled"]) < 0.02
    assert found["smooth", "DCT along inputs"] > found["smooth", "DCT along outputs"]


def test_intruders_are_like_no_vector_of_the_base():
    base = torch.diag(torch.arange(40.0, 0, -1))[:, :20]
    assert statistics(base, 1.01 * base)["intruders"] == 0
    added = torch.zeros(40, 20)
    added[30:, 0] = 100  # a direction that none of the twenty columns has
    assert statistics(base, base + added)["intruders"] == 1


def test_only_changed_matrices_that_are_large_enough_are_measured():
    base = {**matrices(), "small": torch.ones(3, 40), "gone": torch.ones(20, 20)}
    tuned = {**matrices(), "small": torch.zeros(3, 40)}
    tuned["layer.1.weight"] = tuned["layer.1.weight"] + 1
    assert [name for name, *_ in increments(Fitted("", base, tuned))] == ["layer.1.weight"]


def test_a_wheel_that_is_missing_or_of_another_version_is_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"no wheel of chgnet 0.4.2; get it by: pip dow"):
        Wheels(tmp_path, ("chgnet==0.4.2",))
    wheel(tmp_path, "chgnet-0.5.0-py3-none-any.whl", {})
    with pytest.raises(InvalidArgumentError, match=r"chgnet-0.5.0-py3-none-any.whl is another ver"):
        Wheels(tmp_path, ("chgnet==0.4.2",))


def test_the_networks_of_neurochem_are_read_row_after_row(tmp_path):
    files, weights = {}, matrices(3, ((24, 20),))["layer.0.weight"].numpy()
    for kind, shift in (("1x", 0), ("1ccx", 1)):
        folder = f"torchani/resources/ani-{kind}_8x/train0/networks/ANN-H.nnf-l1"
        files[f"{folder}.wparam"] = (weights + shift).astype("<f4").tobytes()
        files[f"{folder}.bparam"] = np.zeros(24, "<f4").tobytes()
    wheel(tmp_path, "torchani-2.0-py3-none-any.whl", files)
    first = next(STUDIES["ani"].pairs(Wheels(tmp_path, STUDIES["ani"].packages)))
    np.testing.assert_array_equal(first.base["H.1"], weights)
    np.testing.assert_array_equal(first.tuned["H.1"], (weights + 1).astype("f4"))


def test_a_study_without_its_wheel_is_left_out_and_the_others_run(tmp_path):
    folder = "rxnfp/models/transformers"
    base = matrices()
    tuned = {name: one + torch.eye(*one.shape) for name, one in base.items()}
    wheel(tmp_path, "rxnfp-0.1.0-py3-none-any.whl", {
        f"{folder}/bert_pretrained/pytorch_model.bin": torch_file(
            {f"bert.{name}": one for name, one in base.items()}),
        f"{folder}/bert_ft/pytorch_model.bin": torch_file(tuned),
    })  # fmt: skip
    (tmp_path / "chgnet-0.4.2-py3-none-any.whl").write_bytes(b"no archive")
    wheel(tmp_path, "mhcnuggets-2.4.1-py2.py3-none-any.whl", {
        "mhcnuggets/saves/production/HLA-A02:01_BA.h5": b"no checkpoint"})  # fmt: skip
    done = CliRunner().invoke(main, ["--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert re.search(r"rxnfp: \d+ retained, 2 matrices", done.stdout)
    assert all(f"{study}: left out: " in done.stderr for study in ("ani", "chgnet", "mhc-1"))
    found = pd.read_parquet(tmp_path / "out" / "rxnfp-retained.parquet")
    assert set(found["accounting"]) == {"paper", "trainable", "bits"}
    here = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert CliRunner().invoke(main, [*here, "--bits"]).exit_code == 0
    found = pd.read_parquet(tmp_path / "rxnfp-bits.parquet")
    assert found.groupby("bits").name.nunique().tolist() == [2] * 4
    assert {"none", "dct", "random"} < set(found["transform"])
    (tmp_path / "rxnfp-0.1.0-py3-none-any.whl").unlink()
    done = CliRunner().invoke(main, here)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith(": nothing was measured")


def test_a_listed_pair_is_analysed_beside_what_was_published_of_it(tmp_path):
    base = matrices(0, ((64, 48), (48, 64)))
    tuned = {name: one.clone() for name, one in base.items()}
    tuned["layer.0.weight"][:, :12] += 1.0  # a quarter of one matrix, of rank 1
    for name, one in (("base", base), ("tuned", tuned)):
        save_file(one, tmp_path / f"{name}.safetensors")
    listed = tmp_path / "pairs.toml"
    listed.write_text(f"[mine]\nbase = '{tmp_path / 'base.safetensors'}'\n"
                      f"tuned = ['{tmp_path / 'tuned.safetensors'}']\ngigabytes = 1\n"
                      "published = 'A quarter changed.'\n")  # fmt: skip
    asked = ["--pairs", str(listed), "--out", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(hub, ["mine", *asked])
    assert done.exit_code == 0, done.output
    assert "published: A quarter changed." in done.stdout
    said = "matrices 1, entries changed in them 0.25, norm of ΔW 27.71, mean effective rank 1, "
    assert said in done.stdout
    assert (tmp_path / "out" / "analyze.parquet").exists()
    assert f"mine (1 GB): {tmp_path / 'tuned.safetensors'}" in CliRunner().invoke(hub, asked).stdout
    done = CliRunner().invoke(hub, ["mime", *asked])
    assert "unknown pair 'mime'; did you mean mine?" in done.stderr
    for one in tomllib.loads(PAIRS.read_text()).values():
        names = [one["base"], *one["tuned"]]
        assert all(re.fullmatch(r"hub:[\w-]+/[\w.-]+", name) for name in names)
        assert one["published"]
        assert one["gigabytes"] > 0


def keras_file(weights):
    file = io.BytesIO()
    with h5py.File(file, "w") as stored:
        for name, one in weights.items():
            layer = name.removesuffix("_recurrent")
            kind = "kernel" if layer == name else "recurrent_kernel"
            stored[f"{layer}/{layer}/{kind}:0"] = one.T
        stored["lstm/lstm/bias:0"] = np.zeros(3)
    return file.getvalue()


def test_alleles_are_those_that_descend_from_the_parent(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    parent, other = (
        {"lstm_1": rng.normal(size=(64, 20)), "lstm_1_recurrent": rng.normal(size=(64, 16))}
        for _ in range(2)
    )
    changed, folder = {**parent, "lstm_1": parent["lstm_1"] + 1}, "mhcnuggets/saves/production"
    wheel(tmp_path, "mhcnuggets-2.4.1-py2.py3-none-any.whl", {
        f"{folder}/HLA-A02:01_BA.h5": keras_file(parent),
        f"{folder}/HLA-A02:02_BA.h5": keras_file(changed),
        f"{folder}/HLA-DRB1_BA.h5": keras_file(other),
        f"{folder}/HLA-A02:02_BA_to_HLAp.h5": keras_file(parent),
    })  # fmt: skip
    wheels = Wheels(tmp_path, STUDIES["mhc-1"].packages)
    (pair,) = STUDIES["mhc-1"].pairs(wheels)
    assert pair.name == "HLA-A02:02"
    np.testing.assert_array_equal(pair.tuned["lstm_1"], changed["lstm_1"])
    np.testing.assert_array_equal(pair.base["lstm_1_recurrent"], parent["lstm_1_recurrent"])
    (pair,) = STUDIES["mhc-hlap"].pairs(wheels)
    np.testing.assert_array_equal(pair.base["lstm_1"], changed["lstm_1"])
    with pytest.raises(
        InvalidArgumentError, match="the wheel holds no mhcnuggets/saves/production"
    ):
        next(STUDIES["mhc-2"].pairs(wheels))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InvalidArgumentError, match="h5py, which reads the files of Keras"):
        next(STUDIES["mhc-1"].pairs(wheels))

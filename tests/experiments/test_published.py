"""Published fine-tunes: what is read of a wheel, what is measured, and a second implementation."""

import csv
import io
import math
import os
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from scipy.stats import ortho_group

from experiments.published.__main__ import increments, main, matrices, votes
from experiments.published.hub import PAIRS
from experiments.published.hub import main as hub
from experiments.published.measures import concentrations, repeats, retained
from experiments.published.wheels import STUDIES, Pair, Study, Wheels, alleles
from loca_theory.checkpoints import analyze
from loca_theory.errors import InvalidArgumentError

STORED = Path(__file__).parents[2] / "figures" / "published" / "published.parquet"
FOLDER = os.environ.get("LOCA_THEORY_WHEELS")  # with the wheels that docs/published.md downloads


def wheel(folder, name, files):
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def torch_file(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def weights(seed=0, shapes=((24, 20), (16, 64))):
    rng = np.random.default_rng(seed)
    return {
        f"layer.{i}.weight": torch.from_numpy(rng.normal(size=shape)).float()
        for i, shape in enumerate(shapes)
    }


def cosines(n):
    """The DCT matrix, from its formula."""
    k, j = np.arange(n)[:, None], np.arange(n)[None]
    matrix = math.sqrt(2 / n) * np.cos(math.pi * (j + 0.5) * k / n)
    matrix[0] /= math.sqrt(2)
    return matrix


def naive(matrix, r, accounting):
    """Retained fractions of the three forms and the concentration, by other means."""
    p, q = matrix.shape
    numbers = (p + q) * r
    in_bits = math.floor(16 * numbers / (16 + math.log2(p * q)))
    count = {"paper": numbers // 2, "trainable": numbers, "bits": in_bits}[accounting]
    total = (matrix**2).sum()
    frequencies = cosines(p) @ matrix @ cosines(q).T
    energies = np.linalg.eigvalsh(matrix @ matrix.T if p < q else matrix.T @ matrix)
    w = energies / energies.sum()
    ratios = []
    for n, axis in ((p, 1), (q, 0)):
        share = (frequencies**2).sum(axis) / total
        ratios.append((n + 2) * (share**2).sum() / (1 + 2 * (w**2).sum()))
    largest = [sorted((part**2).ravel())[-count:] for part in (frequencies, matrix)]
    sums = {"LoRA": energies[-r:].sum(), "LoCA": sum(largest[0]), "entries": sum(largest[1])}
    return {form: part / total for form, part in sums.items()} | {"concentration": max(ratios)}


def assert_same(row, expected):
    selected = {name: row[name] for name in expected}
    # Sums of pq squares in another order, and eigenvalues of a Gram matrix: about pq·2⁻⁵².
    assert selected == pytest.approx(expected, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("shape", [(24, 20), (17, 40), (33, 16)])
def test_a_second_implementation_retains_as_much(shape):
    matrix = np.random.default_rng(sum(shape)).standard_t(3, size=shape)
    rows = list(retained(torch.from_numpy(matrix), (2, 4)))
    assert len(rows) == 6
    for row in rows:
        assert_same(row, naive(matrix, row["r"], row["accounting"]))


def read_ani(archive, pair, name):
    """The two networks of a row of the table; the biases have as many numbers as there are rows."""
    element, layer = name.split(".")
    for kind in ("1x", "1ccx"):
        member = pair.removeprefix("member ")
        path = f"torchani/resources/ani-{kind}_8x/train{member}/networks/ANN-{element}.nnf-l{layer}"
        rows = len(np.frombuffer(archive.read(f"{path}.bparam"), "<f4"))
        yield np.frombuffer(archive.read(f"{path}.wparam"), "<f4").reshape(rows, -1).astype(float)


def read_alleles(archive, pair, name):
    """The network of an allele and of the one from which its authors say that it was trained."""
    parents = {}
    for group in ("I", "II"):
        text = archive.read(f"mhcnuggets/data/production/mhc{group}/mhc_tuning.csv").decode()
        parents |= {row[0]: row[1] for row in csv.reader(io.StringIO(text))}
    is_second = pair.startswith(("HLA-D", "H-2-I", "BoLA-D", "Mamu-D"))
    parent = parents.get(pair, "HLA-DRB101:01" if is_second else "HLA-A02:01")
    layer = name.removesuffix("_recurrent")
    for allele in (parent, pair):
        content = archive.read(f"mhcnuggets/saves/production/{allele}_BA.h5")
        with h5py.File(io.BytesIO(content)) as stored:
            kind = "recurrent_kernel" if "recurrent" in name else "kernel"
            names = []
            stored[layer].visit(names.append)
            path = next(name for name in names if re.search(rf"(^|/){kind}(:0)?$", name))
            yield np.array(stored[layer][path][()]).T.astype(float)


@pytest.mark.skipif(not FOLDER, reason="set LOCA_THEORY_WHEELS to the folder of the wheels")
@pytest.mark.parametrize(
    ("pattern", "study", "read"),
    [
        ("torchani-2.0-*", "ani", read_ani),
        ("mhcnuggets-2.4.1-*", "mhc-1", read_alleles),
        ("mhcnuggets-2.4.1-*", "mhc-2", read_alleles),
    ],
)
def test_the_stored_table_is_that_of_a_second_implementation(pattern, study, read):
    (path,) = Path(FOLDER).glob(pattern)
    table = pd.read_parquet(STORED).query("study == @study and role == 'increment'")
    with zipfile.ZipFile(path) as archive:
        if study != "ani":
            classes = {"mhc-1": ("I", 19, 2), "mhc-2": ("II", 41, 10)}
            name, stated, left_out = classes[study]
            networks = alleles(name, Wheels(Path(FOLDER), STUDIES[study].packages))
            # The sum of these is in "12 of the 60" of the page.
            assert (len(networks.stated), len(networks.left_out)) == (stated, left_out)
        for row in table.sample(20, random_state=0).to_dict("records"):
            base, tuned = read(archive, row["pair"], row["name"])
            assert_same(row, naive(tuned - base, row["r"], row["accounting"]))


@pytest.mark.skipif(not FOLDER, reason="set LOCA_THEORY_WHEELS to the folder of the wheels")
def test_the_page_says_how_near_anis_networks_are_to_their_bases():
    cosines = []
    for pair in STUDIES["ani"].pairs(Wheels(Path(FOLDER), STUDIES["ani"].packages)):
        cosines += [
            float((base * tuned).sum() / base.norm() / tuned.norm())
            for _, base, tuned in increments(pair)
        ]
    page = STORED.parents[2] / "docs" / "published.md"
    count = sum(cosine < 0.5 for cosine in cosines)
    said = f"{count} of {len(cosines)} have a cosine of W₀ and W′ below the 0.5 under which "
    assert f"{said}`analyze` warns ({min(cosines):.2f} at least)" in " ".join(
        page.read_text().split()
    )


def test_what_is_retained_is_what_an_analysis_says():
    base, change = weights(), weights(1)
    result = analyze(base, {k: base[k] + change[k] for k in base}, ranks=[2, 4], methods=["LoCA"])
    expected = {(error.name, error.r, error.method): error for error in result.errors}
    for name, delta in change.items():
        for row in retained(delta, (2, 4)):
            error = expected[name, row["r"], "LoCA"]
            if row["accounting"] == "paper":
                assert row["LoCA"] == pytest.approx(1 - error.error, abs=1e-5)
                assert row["predicted"] == pytest.approx(1 - error.spectral_error, abs=1e-5)


def test_the_concentration_of_random_singular_vectors_is_one_in_expectation():
    rng, p, q, draws = np.random.default_rng(3), 12, 9, 2000
    s = 1.0 / np.arange(1, 10)
    ratios = []
    for _ in range(draws):
        u, v = ortho_group.rvs(p, random_state=rng), ortho_group.rvs(q, random_state=rng)
        energies = np.square(cosines(p) @ (u[:, :q] * s) @ v.T).sum(1) / np.square(s).sum()
        w = s**2 / np.square(s).sum()
        ratios.append((p + 2) * np.square(energies).sum() / (1 + 2 * np.square(w).sum()))
    mean, error = np.mean(ratios), np.std(ratios) / math.sqrt(draws)
    assert abs(mean - 1) < 5 * error < 0.05


def test_a_smooth_or_constant_axis_is_concentrated_and_noise_is_not():
    noise = np.random.default_rng(2).normal(size=(2, 48, 40))
    smooth, row, column = np.cumsum(noise[0], 0), 5 * noise[0][:1], 5 * noise[0][:, :1]
    cases = ((smooth, True), (row, True), (column, True), (0 * noise[0], False))
    for part, is_concentrated in cases:
        matrix = torch.from_numpy(part + noise[1])
        ratios = concentrations(matrix, np.linalg.svd(matrix.numpy(), compute_uv=False))
        assert (max(ratios) > 1.2) == is_concentrated


def test_only_changed_matrices_that_are_large_enough_are_measured():
    base = {**weights(), "small": torch.ones(3, 40), "gone": torch.ones(20, 20)}
    tuned = {**weights(), "small": torch.zeros(3, 40)}
    tuned["layer.1.weight"] = tuned["layer.1.weight"] + 1
    assert [name for name, *_ in increments(Pair("", base, tuned))] == ["layer.1.weight"]


def test_each_step_has_one_vote_and_its_controls(tmp_path):
    base, other = weights(0, ((24, 20),)), weights(5, ((24, 20),))
    step, second = weights(1, ((24, 20),)), weights(2, ((24, 20),))
    name = "layer.0.weight"
    pairs = [
        Pair("first", base, {name: base[name] + step[name]}),
        Pair("nearly a copy", base, {name: base[name] - 1.01 * step[name]}),
        Pair("second", base, {name: base[name] + second[name]}),
        # Its step is below half of the spacing of bfloat16, so nothing is left of it there.
        Pair("tiny", {name: torch.ones(24, 20)}, {name: torch.full((24, 20), 1 + 2**-10)}),
    ]
    study = Study("", ("",), lambda _: iter(pairs), lambda _: iter([Pair("x", base, other)]))
    voters = votes(matrices(study, Wheels(tmp_path, ())))
    roles_and_pairs = [(voter.role, voter.pair) for voter in voters]
    steps = [pair for role, pair in roles_and_pairs if role == "increment"]
    assert steps == ["first", "second", "tiny"]
    assert [pair for role, pair in roles_and_pairs if role == "base"] == ["first", "tiny"]
    assert [pair for role, pair in roles_and_pairs if role == "bfloat16"] == ["first", "second"]
    assert [pair for role, pair in roles_and_pairs if role == "unrelated"] == ["x"]
    assert repeats([step[name], step[name] + 0.2 * second[name]]) == [False, False]


def test_a_wheel_that_is_missing_or_of_another_version_is_named(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"no wheel of chgnet 0.4.2; get it by: pip dow"):
        Wheels(tmp_path, ("chgnet==0.4.2",))
    wheel(tmp_path, "chgnet-0.5.0-py3-none-any.whl", {})
    with pytest.raises(InvalidArgumentError, match=r"chgnet-0.5.0-py3-none-any.whl is another ver"):
        Wheels(tmp_path, ("chgnet==0.4.2",))


def test_the_networks_of_neurochem_are_read_row_after_row(tmp_path):
    files, matrix = {}, weights(3, ((24, 20),))["layer.0.weight"].numpy()
    for kind, shift in (("1x", 0), ("1ccx", 1)):
        for member in range(8):
            folder = f"torchani/resources/ani-{kind}_8x/train{member}/networks/ANN-H.nnf-l1"
            files[f"{folder}.wparam"] = (matrix + shift + member).astype("<f4").tobytes()
            files[f"{folder}.bparam"] = np.zeros(24, "<f4").tobytes()
    wheel(tmp_path, "torchani-2.0-py3-none-any.whl", files)
    wheels = Wheels(tmp_path, STUDIES["ani"].packages)
    first = next(STUDIES["ani"].pairs(wheels))
    np.testing.assert_array_equal(first.base["H.1"], matrix)
    np.testing.assert_array_equal(first.tuned["H.1"], (matrix + 1).astype("f4"))
    differences = [
        pair.tuned["H.1"][0, 0] - pair.base["H.1"][0, 0]
        for pair in STUDIES["ani"].unrelated(wheels)
    ]
    assert differences == pytest.approx([1] * 7 + [-7], abs=1e-5)
    files[f"{folder}.bparam"] = b""
    wheel(tmp_path, "torchani-2.0-py3-none-any.whl", files)
    with pytest.raises(InvalidArgumentError, match="does not hold 0 rows of float32 numbers"):
        list(STUDIES["ani"].pairs(Wheels(tmp_path, STUDIES["ani"].packages)))


def test_a_study_without_its_wheel_is_left_out_and_the_others_run(tmp_path):
    folder = "rxnfp/models/transformers"
    base = weights()
    tuned = {name: matrix + torch.eye(*matrix.shape) for name, matrix in base.items()}
    sides = {"bert_pretrained": {f"bert.{key}": w for key, w in base.items()}, "bert_ft": tuned}
    files = {f"{folder}/{side}/pytorch_model.bin": torch_file(w) for side, w in sides.items()}
    wheel(tmp_path, "rxnfp-0.1.0-py3-none-any.whl", files)
    (tmp_path / "chgnet-0.4.2-py3-none-any.whl").write_bytes(b"no archive")
    files = {
        "mhcnuggets/data/production/mhcI/mhc_tuning.csv": "",
        "mhcnuggets/saves/production/HLA-A02:01_BA.h5": b"no checkpoint",
    }
    wheel(tmp_path, "mhcnuggets-2.4.1-py2.py3-none-any.whl", files)
    done = CliRunner().invoke(main, ["--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "rxnfp: 72 rows" in done.stderr  # 2 matrices, 4 roles, 3 ranks, 3 accountings
    assert all(f"{study}: left out: " in done.stderr for study in ("ani", "chgnet", "mhc-1"))
    table = pd.read_parquet(tmp_path / "out" / "published.parquet")
    assert set(table["accounting"]) == {"paper", "trainable", "bits"}
    assert set(table["role"]) == {"increment", "bfloat16", "base", "tuned"}
    options = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert CliRunner().invoke(main, [*options, "--bits"]).exit_code == 0
    table = pd.read_parquet(tmp_path / "published-bits.parquet")
    assert table.groupby("bits").name.nunique().tolist() == [2] * 3
    assert {"none", "dct", "random"} < set(table["transform"])
    (tmp_path / "rxnfp-0.1.0-py3-none-any.whl").unlink()
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith(": nothing was measured")


def keras_file(layers):
    file = io.BytesIO()
    with h5py.File(file, "w") as stored:
        for name, matrix in layers.items():
            layer = name.removesuffix("_recurrent")
            kind = "kernel" if layer == name else "recurrent_kernel"
            stored[f"{layer}/{layer}/{kind}:0"] = matrix.T
        stored["lstm/lstm/bias:0"] = np.zeros(3)
    return file.getvalue()


def test_an_allele_starts_from_the_parent_that_its_authors_state(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    root, other = (
        {"lstm_1": rng.normal(size=(64, 20)), "lstm_1_recurrent": rng.normal(size=(64, 16))}
        for _ in range(2)
    )

    def moved(network, distance, seed):
        step = np.random.default_rng(seed).normal(size=(64, 20))
        return {**network, "lstm_1": network["lstm_1"] + distance * step}

    far = moved(root, 0.3, 1)
    networks = {
        "HLA-A02:01": root,
        "HLA-DRB101:01": other,
        "B1": far,
        "B2": moved(far, 0.01, 2),  # tuned from B1, as stated
        "B3": moved(root, 0.01, 3),  # stated to come from B1, but near the root: unknown
        "C1": moved(far, 0.02, 4),
        "C2": moved(far, 0.03, 5),  # they name each other
    }
    stated = "B2,B1,1.0,5,9\nB3,B1,1.0,5,9\nC1,C2,1.0,5,9\nC2,C1,1.0,5,9\n"
    folder = "mhcnuggets/saves/production"
    files = {f"{folder}/{name}_BA.h5": keras_file(network) for name, network in networks.items()}
    files[f"{folder}/B1_BA_to_HLAp.h5"] = keras_file(root)
    files["mhcnuggets/data/production/mhcI/mhc_tuning.csv"] = stated
    wheel(tmp_path, "mhcnuggets-2.4.1-py2.py3-none-any.whl", files)
    wheels = Wheels(tmp_path, STUDIES["mhc-1"].packages)
    pairs = {pair.name: pair for pair in STUDIES["mhc-1"].pairs(wheels)}
    assert list(pairs) == ["B1", "B2", "C1"]
    parents = {"B1": root, "B2": far, "C1": networks["C2"]}
    for name, parent in parents.items():
        np.testing.assert_array_equal(pairs[name].base["lstm_1"], parent["lstm_1"])
        np.testing.assert_array_equal(pairs[name].tuned["lstm_1"], networks[name]["lstm_1"])
    (pair,) = STUDIES["mhc-hlap"].pairs(wheels)
    np.testing.assert_array_equal(pair.base["lstm_1"], far["lstm_1"])
    (pair,) = STUDIES["mhc-1"].unrelated(wheels)
    np.testing.assert_array_equal(pair.tuned["lstm_1"], other["lstm_1"])
    wheel(
        tmp_path,
        "mhcnuggets-2.4.1-py2.py3-none-any.whl",
        {**files, "mhcnuggets/data/production/mhcI/mhc_tuning.csv": "B1,Z9,1.0,5,9\n"},
    )
    with pytest.raises(InvalidArgumentError, match="needs the networks of Z9, which the wheel la"):
        next(STUDIES["mhc-1"].pairs(Wheels(tmp_path, STUDIES["mhc-1"].packages)))
    with pytest.raises(InvalidArgumentError, match="holds no mhcnuggets/data/production/mhcII"):
        next(STUDIES["mhc-2"].pairs(wheels))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(InvalidArgumentError, match="h5py, which reads the files of Keras"):
        next(STUDIES["mhc-1"].pairs(wheels))


def test_a_listed_pair_is_analysed_beside_what_was_published_of_it(tmp_path):
    base = weights(0, ((64, 48), (48, 64)))
    tuned = {name: tensor.clone() for name, tensor in base.items()}
    tuned["layer.0.weight"][:, :12] += 1.0  # a quarter of one matrix, of rank 1
    for name, entry in (("base", base), ("tuned", tuned)):
        save_file(entry, tmp_path / f"{name}.safetensors")
    listed = tmp_path / "pairs.toml"
    listed.write_text(
        f"[mine]\nbase = '{tmp_path / 'base.safetensors'}'\n"
        f"tuned = ['{tmp_path / 'tuned.safetensors'}']\ngigabytes = 1\n"
        "published = 'A quarter changed.'\n"
    )
    options = ["--pairs", str(listed), "--out", str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(hub, ["mine", *options])
    assert done.exit_code == 0, done.output
    assert "published: A quarter changed." in done.stdout
    said = "matrices 1, entries changed in them 0.25, norm of ΔW 27.71, mean effective rank 1, "
    assert said in done.stdout
    assert (tmp_path / "out" / "analyze.parquet").exists()
    shown = CliRunner().invoke(hub, options).stdout
    assert f"mine (1 GB): {tmp_path / 'tuned.safetensors'}" in shown
    done = CliRunner().invoke(hub, ["mime", *options])
    assert "unknown pair 'mime'; did you mean mine?" in done.stderr
    for entry in tomllib.loads(PAIRS.read_text()).values():
        names = [entry["base"], *entry["tuned"]]
        assert all(re.fullmatch(r"hub:[\w-]+/[\w.-]+", name) for name in names)
        assert entry["published"]
        assert entry["gigabytes"] > 0

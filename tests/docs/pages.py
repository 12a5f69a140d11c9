"""The pages of the documentation, and the blocks of code in them."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from markdown_it import MarkdownIt
from sybil import Document, Example, Region
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

RUN = ("python", "sh", "console")
"""Languages of blocks that are run."""
SHOWN = ("toml", "text")
"""Languages of blocks that are only shown."""
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
"""How output is compared with what a page shows."""
REASONS = {
    "installs": "changes the environment, or starts one",
    "needs a checkout": "the experiments and benchmarks run from the repository's root",
    "needs a hub": "downloads, which tests do not",
    "needs the published texts": "files of tasks that others publish and no repository holds",
    "needs a cluster": "workers on other machines",
    "needs a file": "the page's own Python, saved as a module; tests/cli/test_simulate.py has one",
    "takes minutes": "the same command with smaller numbers is run elsewhere",
}
"""Why a block may say ``<!-- not run: REASON -->``."""


def extension(name: str, folder: str = "_extensions") -> ModuleType:
    """An extension of the site, imported under another name: ``ledger`` is a fixture's, too."""
    spec = spec_from_file_location(f"{name}_page", DOCS / folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """A block that could be run.

    Attributes:
        example: What Sybil found.
        is_shell: Whether it starts processes of its own.
        reason: Why it is not run, None if it is.
    """

    example: Example
    is_shell: bool
    reason: str | None


def name(page: Path) -> str:
    """A page as the tests call it."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[Block]:
    """Blocks of a page, in order, each with the exemption that stands directly above it."""
    document = Document.parse(str(page), *_PARSERS)
    reason, since = None, 0
    for example in document.examples():
        if example.region.evaluator is None:
            assert reason is None, f"{page}: two exemptions for one block"
            reason, since = example.parsed, example.end
            continue
        between = document.text[since : example.start]
        assert reason is None or between.strip(" \n->") == "", f"{page}: an exemption of no block"
        is_shell = example.region.evaluator in (_run_script, _compare_session)
        yield Block(example, is_shell, reason)
        reason = None
    assert reason is None, f"{page}: an exemption of no block"


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every ``loca-theory`` on a page, in blocks that are not run as well."""
    for token in tokens(page):
        if token.type == "fence" and token.info.strip() in ("sh", "console"):
            for line in re.findall(r"^(?:\$ |.*/)?loca-theory (.*)$", token.content, re.M):
                yield shlex.split(line, comments=True)


def tokens(page: Path) -> Iterator:
    """The page as CommonMark (with tables) has it, tokens of text included."""
    parsed = MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8"))
    for token in parsed:
        yield token
        yield from token.children or ()


def _exemptions(document: Document) -> Iterator[Region]:
    for region in DirectiveInHTMLCommentLexer("not run")(document):
        region.parsed = region.lexemes["arguments"]
        yield region


def _run_script(example: Example) -> str | None:
    done = _shell(example.parsed)
    return f"exit code {done.returncode}:\n{done.stderr}" if done.returncode else None


def _compare_session(example: Example) -> str | None:
    """Run each ``$ command`` of a session and compare what it prints with what follows it."""
    checker = doctest.OutputChecker()
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", example.parsed, re.M):
        done = _shell(command)
        if done.returncode:
            return f"$ {command}\nexit code {done.returncode}:\n{done.stderr}"
        if not checker.check_output(_shown(expected), _shown(done.stdout), OPTIONS):
            test = doctest.Example(command, expected)
            return f"$ {command}\n{checker.output_difference(test, done.stdout, OPTIONS)}"
    return None


def _shown(text: str) -> str:
    """Without numbers such as 2.9e-22, which are rounding and differ between processors."""
    return re.sub(r"\d\.\d+e[+-]\d+", "#", text)


def _shell(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script where we stand, with the command of this environment and this code."""
    scripts = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": scripts, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


_PARSERS = (
    PythonCodeBlockParser(doctest_optionflags=OPTIONS),
    CodeBlockParser("sh", _run_script),
    CodeBlockParser("console", _compare_session),
    _exemptions,
)

"""Every block of code in the documentation runs, or says why not."""

import click
import pytest

from loca_theory.cli.main import group

from .pages import PAGES, REASONS, RUN, SHOWN, blocks, commands, name, tokens

each_page = pytest.mark.parametrize("page", PAGES, ids=name)


def each_page_that_runs(*, shell):
    """Pages with blocks that are run; of Python at least, or of any kind."""

    def runs(page):
        return any(block.reason is None and (shell or not block.is_shell) for block in blocks(page))

    return pytest.mark.parametrize("page", list(filter(runs, PAGES)), ids=name)


@pytest.fixture
def cwd(tmp_path, monkeypatch):
    """An empty folder for the files of a page."""
    monkeypatch.chdir(tmp_path)


trains = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)


@trains
@each_page_that_runs(shell=False)
def test_the_python_of_a_page_runs(page, cwd):
    """Each command of a page takes seconds to start, its Python does not."""
    for block in blocks(page):
        if block.reason is None and not block.is_shell:
            block.example.evaluate()


@pytest.mark.deep
@trains
@each_page_that_runs(shell=True)
def test_the_blocks_of_a_page_run_one_after_the_other(page, cwd):
    for block in blocks(page):
        if block.reason is None:
            block.example.evaluate()


def test_every_command_of_the_pages_can_be_parsed():
    used = set()
    for command, *arguments in (line for page in PAGES for line in commands(page)):
        used.add(command)
        if command != "--version":
            group.get_command(click.Context(group), command).make_context(command, arguments)
    assert used >= set(group.list_commands(click.Context(group)))


@each_page
def test_no_block_escapes(page):
    """Sybil finds as many blocks as CommonMark has, and each has a language that is known."""
    languages = [token.info.strip() for token in tokens(page) if token.type == "fence"]
    unknown = {text for text in languages if text not in (*RUN, *SHOWN) and text[:1] != "{"}
    assert not unknown
    assert not [token.content for token in tokens(page) if token.type == "code_block"]
    lines = {block.example.line for block in blocks(page)}
    runnable = [token.map for token in tokens(page) if token.type == "fence" and token.info in RUN]
    assert not [start + 1 for start, end in runnable if lines.isdisjoint(range(start, end + 1))]


def test_every_reason_is_used():
    assert {block.reason for page in PAGES for block in blocks(page)} - {None} == set(REASONS)

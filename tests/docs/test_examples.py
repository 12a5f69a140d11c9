"""Every block of code in the documentation runs, or says why not."""

import click
import pytest

from loca_theory.cli.main import group

from .pages import PAGES, REASONS, RUN, SHOWN, blocks, commands, name, tokens

each_page = pytest.mark.parametrize("page", PAGES, ids=name)


def each_page_that_runs(*, shell):
    """Pages with blocks that are run; of Python at least, or of any kind."""

    def runs(page):
        return any(one.reason is None and (shell or not one.is_shell) for one in blocks(page))

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
    found = set()
    for command, *arguments in (one for page in PAGES for one in commands(page)):
        found.add(command)
        if command != "--version":
            group.get_command(click.Context(group), command).make_context(command, arguments)
    assert found >= set(group.list_commands(click.Context(group)))


@each_page
def test_no_block_escapes(page):
    """Sybil finds as many blocks as CommonMark has, and each has a language that is known."""
    languages = [one.info.strip() for one in tokens(page) if one.type == "fence"]
    unknown = {one for one in languages if one not in (*RUN, *SHOWN) and not one.startswith("{")}
    assert not unknown
    assert not [one.content for one in tokens(page) if one.type == "code_block"]
    found = {block.example.line for block in blocks(page)}
    runnable = [one.map for one in tokens(page) if one.type == "fence" and one.info in RUN]
    assert not [start + 1 for start, end in runnable if found.isdisjoint(range(start, end + 1))]


def test_every_reason_is_used():
    assert {block.reason for page in PAGES for block in blocks(page)} - {None} == set(REASONS)

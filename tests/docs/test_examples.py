"""Every block of code in the documentation runs, or says why not."""

import pytest
import torch
from safetensors.torch import save_file

from .pages import PAGES, REASONS, ROOT, RUN, SHOWN, blocks, name, tokens

each_page = pytest.mark.parametrize("page", PAGES, ids=name)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder for the files of a page; for the README one with a fine-tune."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_checkpoints(folder):
    generator = torch.Generator().manual_seed(0)
    for which in ("base", "finetuned"):
        (folder / which).mkdir()
        weights = {"layer.0.query.weight": torch.randn(128, 128, generator=generator)}
        save_file(weights, folder / which / "model.safetensors")


@pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")
@each_page
def test_the_blocks_of_a_page_run_one_after_the_other(page, here):
    if page == ROOT / "README.md":
        make_checkpoints(here)
    for block in blocks(page):
        if block.reason is None:
            block.example.evaluate()


@each_page
def test_blocks_that_are_not_run_say_why_not(page):
    assert {block.reason for block in blocks(page)} <= {None, *REASONS}


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

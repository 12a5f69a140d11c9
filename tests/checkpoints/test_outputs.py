"""Outputs of a loaded adapter beside those of the fine-tune: files of inputs, and what differs."""

import math

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from loca_theory.checkpoints import extract
from loca_theory.checkpoints.extraction.outputs import OutputRow, compared
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints.test_resizing import CONFIGS, llama, pytestmark, written  # noqa: F401


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base with a tokenizer, and an adapter of it."""
    base, adapter = written(tmp_path_factory.mktemp("outputs"), llama, CONFIGS["lora"])
    words = {word: number for number, word in enumerate(["[UNK]", *"abcdefgh"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(base)
    return base, adapter


def test_what_differs_is_what_the_formulas_say():
    goal = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
    before = torch.zeros_like(goal)
    after = torch.tensor([[0.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    found = compared("adapter", goal, before, after)
    p = [[1 / (1 + math.e), math.e / (1 + math.e)], [math.e**2 / (1 + math.e**2), 0]]
    p[1][1] = 1 - p[1][0]
    half, one = math.sqrt(math.e), math.e
    q = [[1 / (1 + half), half / (1 + half)], [1 / (1 + one), one / (1 + one)]]
    kl = sum(
        a * math.log(a / b) for x, y in zip(p, q, strict=True) for a, b in zip(x, y, strict=True)
    )
    assert (found.error, found.agreement, found.positions) == (pytest.approx(5.25 / 5), 0.5, 2)
    assert found.kl == pytest.approx(kl / 2)
    assert compared("base", goal[:, :1], before[:, :1], before[:, :1]) == OutputRow(
        "base", 1.0, None, None, 2
    )


def test_texts_and_tensors_give_the_same_outputs(folders, tmp_path):
    texts, tensors = tmp_path / "texts.txt", tmp_path / "inputs.safetensors"
    texts.write_text("a b c\n\nd e f\n", encoding="utf-8")
    save_file({"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}, tensors)
    rows = [
        extract(*folders, "lora", rank=2, check=True, inputs=one).outputs
        for one in (str(texts), tensors)
    ]
    for one, other in zip(*rows, strict=True):
        assert one.positions == other.positions == 6
        assert (one.error, one.kl) == pytest.approx((other.error, other.kl), rel=1e-4)
    base, adapter = rows[0]
    assert (base.model, base.error, adapter.model) == ("base", 1.0, "adapter")
    assert 0 < adapter.error < 1
    assert 0 < adapter.kl < base.kl
    whole = extract(*folders, "lora", rank=8, check=True, inputs=tensors).outputs[-1]
    assert whole.error < 1e-6
    assert whole.agreement == 1


BAD = {
    "missing": (None, "there is no file"),
    "empty": (b" \n\n", "holds no text; write one per line"),
    "binary": (b"\xff\xfe\x00", "neither a file of tensors nor a text"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_inputs_are_refused_before_anything_is_computed(folders, tmp_path, case):
    content, message = BAD[case]
    path = tmp_path / "inputs.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=message):
        extract(*folders, "lora", rank=2, check=True, inputs=path)
    with pytest.raises(InvalidArgumentError, match="pass check=True as well"):
        extract(*folders, "lora", rank=2, inputs=path)


def test_a_text_that_the_tokenizer_cannot_read_is_one_line(folders, tmp_path):
    base, adapter = folders
    model = Tokenizer(models.WordLevel({"a": 0}))  # without a token for other words
    (tmp_path / "base").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "base" / name).write_bytes((base / name).read_bytes())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=model)
    tokenizer.save_pretrained(tmp_path / "base")
    texts = tmp_path / "texts.txt"
    texts.write_text("z", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"the tokenizer cannot read a text of .*: Word"):
        extract(tmp_path / "base", adapter, "lora", rank=2, check=True, inputs=texts)
    # A damaged file of a tokenizer raises errors of any type.
    (tmp_path / "base" / "tokenizer.json").write_text(
        '{"version": "1.0", "added_tokens": [], "model": {"type": "None"}}', encoding="utf-8"
    )
    with pytest.raises(InvalidArgumentError, match=r"no tokenizer can be read .* - .*base: \w"):
        extract(tmp_path / "base", adapter, "lora", rank=2, check=True, inputs=texts)


def test_texts_need_a_tokenizer_and_tensors_the_names_of_arguments(folders, tmp_path):
    base, adapter = folders
    texts, tensors = tmp_path / "texts.txt", tmp_path / "inputs.safetensors"
    texts.write_text("a b", encoding="utf-8")
    save_file({"pixels": torch.zeros(2, 3)}, tensors)
    (tmp_path / "base").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "base" / name).write_bytes((base / name).read_bytes())
    with pytest.raises(InvalidArgumentError, match="no tokenizer can be read"):
        extract(tmp_path / "base", adapter, "lora", rank=2, check=True, inputs=texts)
    with pytest.raises(InvalidArgumentError, match="does not run on these inputs"):
        extract(base, adapter, "lora", rank=2, check=True, inputs=tensors)

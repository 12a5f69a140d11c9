"""Outputs of a loaded adapter beside those of the fine-tune, and adapters in bases of few bits."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy import stats
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from loca_theory.checkpoints import extract
from loca_theory.checkpoints.extraction.outputs import (
    OutputRow,
    compared,
    quantised,
    surviving_energy,
)
from loca_theory.errors import InvalidArgumentError
from tests.checkpoints import zoo
from tests.checkpoints.files import normal


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base with a tokenizer, and a fine-tune of it."""
    base, tuned = zoo.pair("Llama", tmp_path_factory.mktemp("outputs"))
    words = {word: number for number, word in enumerate(["[UNK]", *"abcdefgh"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(base)
    return base, tuned


def test_what_differs_is_what_the_formulas_say():
    goal = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64)
    before = torch.zeros_like(goal)
    after = torch.tensor([[0.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    row = compared("adapter", goal, before, after)
    p, q = (logits.exp() / logits.exp().sum(1, keepdim=True) for logits in (goal, after))
    kl = float((p * (p / q).log()).sum()) / 2
    assert (row.error, row.kl) == (pytest.approx(5.25 / 5), pytest.approx(kl))
    assert (row.agreement, row.positions) == (0.5, 2)
    assert compared("base", goal[:, :1], before[:, :1], before[:, :1]) == OutputRow(
        "base", 1.0, None, None, 2
    )


def test_texts_and_tensors_give_the_same_outputs(folders, tmp_path):
    texts, tensors = tmp_path / "texts.txt", tmp_path / "inputs.safetensors"
    texts.write_text("a b c\n\nd e f\n", encoding="utf-8")
    save_file({"input_ids": torch.tensor([[1, 2, 3], [4, 5, 6]])}, tensors)
    options = {"rank": 3, "save_modules": "embed|lm_head", "check": True}
    rows = [
        extract(*folders, "lora", inputs=inputs, **options).outputs
        for inputs in (str(texts), tensors)
    ]
    for row, other in zip(*rows, strict=True):
        assert row.positions == other.positions == 6
        assert (row.error, row.kl) == pytest.approx((other.error, other.kl), rel=1e-4)
    base, adapter = rows[0]
    assert (base.model, base.error, adapter.model) == ("base", 1.0, "adapter")
    assert 0 < adapter.error < 1
    assert 0 < adapter.kl < base.kl


def test_what_cannot_be_read_or_run_is_one_line(folders, tmp_path):
    def refused(base, inputs, message):
        with pytest.raises(InvalidArgumentError, match=message):
            extract(base, tuned, "lora", rank=2, check=True, inputs=inputs)

    base, tuned = folders
    texts, tensors = tmp_path / "texts.txt", tmp_path / "inputs.safetensors"
    refused(base, texts, "there is no file")
    texts.write_bytes(b" \n\n")
    refused(base, texts, "holds no text; write one per line")
    texts.write_bytes(b"\xff\xfe\x00")
    refused(base, texts, "neither a file of tensors nor a text")
    texts.write_bytes(b"z")
    save_file({"pixels": torch.zeros(2, 3)}, tensors)
    refused(base, tensors, "does not run on these inputs")
    bare = tmp_path / "base"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((base / name).read_bytes())
    refused(bare, texts, r"no tokenizer can be read .* - .*base: \w")
    model = Tokenizer(models.WordLevel({"a": 0}))  # without a token for other words
    PreTrainedTokenizerFast(tokenizer_object=model).save_pretrained(bare)
    refused(bare, texts, r"the tokenizer cannot read a text of .*: Word")
    # A damaged file of a tokenizer raises errors of any type.
    damaged = '{"version": "1.0", "added_tokens": [], "model": {"type": "None"}}'
    (bare / "tokenizer.json").write_text(damaged, encoding="utf-8")
    refused(bare, texts, r"no tokenizer can be read .* - .*base: \w")


# QLoRA, appendix E: quantiles of a normal law on both sides of 0, over the largest.
_LAST = 0.9677083
_QUANTILES = (
    *stats.norm.ppf(np.linspace(_LAST, 0.5, 9)),
    *-stats.norm.ppf(np.linspace(_LAST, 0.5, 8)[:-1]),
)
NF4 = torch.tensor(_QUANTILES).float() / max(_QUANTILES)


@pytest.fixture
def weight():
    return normal(24, 40)


def test_four_bits_are_those_of_bitsandbytes(weight):
    bnb = pytest.importorskip("bitsandbytes.functional")
    packed, state = bnb.quantize_4bit(weight, blocksize=64, quant_type="nf4")
    theirs = bnb.dequantize_4bit(packed, state)
    torch.testing.assert_close(quantised(weight, 4), theirs, rtol=1e-6, atol=1e-6)


def test_bits_are_the_nearest_code_of_a_block_or_an_integer_with_a_scale_per_row(weight):
    largest = weight.view(-1, 64).abs().amax(1, keepdim=True)
    nearest = NF4[((weight.view(-1, 64) / largest)[..., None] - NF4).abs().argmin(-1)]
    rounded = quantised(weight, 4).view(-1, 64) / largest
    torch.testing.assert_close(rounded, nearest, rtol=1e-6, atol=1e-6)
    scale = 127 / weight.abs().amax(1, keepdim=True)
    codes = quantised(weight, 8) * scale
    torch.testing.assert_close(codes, (weight * scale).round(), rtol=0, atol=1e-4)


def test_what_survives_is_less_the_smaller_the_change_is(weight):
    change = torch.outer(torch.linspace(-1, 1, 24), torch.linspace(1, 2, 40))
    fractions = [surviving_energy(weight, weight + size * change, 8) for size in (1.0, 0.1, 0.01)]
    assert fractions[0] > 0.99
    assert fractions == sorted(fractions, reverse=True)
    assert surviving_energy(weight, weight + 0.01 * change, 4) < fractions[2]
    assert surviving_energy(weight, weight, 4) == 1.0

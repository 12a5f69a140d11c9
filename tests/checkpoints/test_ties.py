"""Weights that a model ties: compared once, also where only one of the files holds both."""

import pytest
import torch

from loca_theory.checkpoints import extract
from loca_theory.checkpoints.pairs.opening import open_pair
from tests.checkpoints.files import folder_of, normal

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def notes(pair):
    return {name: one.note for name, one in pair.matrices.items() if one.note}


def weights(seed, *names, embedding=EMBEDDING):
    content = {"model.layers.0.q.weight": normal(20, 20, seed=seed)}
    content |= {name: normal(30, 20, seed=seed + 10 * i) for i, name in enumerate(names, 1)}
    return content


@pytest.mark.parametrize("embedding", [EMBEDDING, "transformer.wte.weight", "shared.weight"])
def test_a_base_without_a_head_is_compared_by_its_embedding(tmp_path, embedding):
    base, tuned = weights(0, embedding), weights(1, embedding, HEAD)
    pair = open_pair(folder_of(tmp_path / "base", base), folder_of(tmp_path / "tuned", tuned))
    assert torch.equal(pair.increment(HEAD), tuned[HEAD] - base[embedding])
    assert torch.equal(pair.weights(HEAD), base[embedding])
    assert pair.names[HEAD] == HEAD
    assert notes(pair) == {
        HEAD: f"the base checkpoint has no {HEAD}, but {embedding}, to which it ties it"
    }
    assert pair.skipped == []


def test_a_fine_tune_without_a_head_is_compared_by_its_embedding(tmp_path):
    base, tuned = weights(0, EMBEDDING, HEAD), weights(1, EMBEDDING)
    pair = open_pair(folder_of(tmp_path / "base", base), folder_of(tmp_path / "tuned", tuned))
    assert torch.equal(pair.increment(HEAD), tuned[EMBEDDING] - base[HEAD])
    assert pair.names[HEAD] == EMBEDDING
    assert "the fine-tuned checkpoint has no lm_head.weight" in pair.matrices[HEAD].note


def test_a_file_may_hold_the_head_instead_of_the_embedding(tmp_path):
    base, tuned = weights(0, HEAD), weights(1, EMBEDDING, HEAD)
    pair = open_pair(folder_of(tmp_path / "base", base), folder_of(tmp_path / "tuned", tuned))
    assert torch.equal(pair.increment(EMBEDDING), tuned[EMBEDDING] - base[HEAD])


CONFIGS = {
    "not tied": {"tie_word_embeddings": False},
    "text model not tied": {"text_config": {"tie_word_embeddings": False}},
    "a classifier": {"architectures": ["LlamaForSequenceClassification"]},
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
def test_a_model_without_a_tied_head_is_not_compared_by_its_embedding(tmp_path, config):
    base = folder_of(tmp_path / "base", weights(0, EMBEDDING, HEAD))
    tuned = folder_of(tmp_path / "tuned", weights(1, EMBEDDING), config)
    (skipped,) = open_pair(base, tuned).skipped
    assert (skipped.name, skipped.reason) == (HEAD, "only in the base checkpoint")


def test_a_classifier_is_known_by_its_own_head():
    base, tuned = weights(0, EMBEDDING, HEAD), weights(1, EMBEDDING, "score.weight")
    reasons = {one.name: one.reason for one in open_pair(base, tuned).skipped}
    assert reasons[HEAD] == "only in the base checkpoint"


TIED_CONFIGS = {
    "tied": {"tie_word_embeddings": True, "architectures": ["GemmaForCausalLM"]},
    "by default": {"architectures": ["GPT2LMHeadModel"]},
    "not a list": {"architectures": 3, "text_config": 3},
}


@pytest.mark.parametrize("config", TIED_CONFIGS.values(), ids=TIED_CONFIGS.keys())
def test_a_configuration_that_allows_a_tie(tmp_path, config):
    base = folder_of(tmp_path / "base", weights(0, EMBEDDING, HEAD))
    tuned = folder_of(tmp_path / "tuned", weights(1, EMBEDDING), config)
    assert HEAD in open_pair(base, tuned).names


def test_a_bare_model_has_no_head(tmp_path):
    bare = {name.removeprefix("model."): value for name, value in weights(1, EMBEDDING).items()}
    base = folder_of(tmp_path / "base", weights(0, EMBEDDING, HEAD))
    pair = open_pair(base, folder_of(tmp_path / "tuned", bare))
    assert pair.prefix == "model."
    assert [one.reason for one in pair.skipped] == ["only in the base checkpoint"]


def tied(seed):
    content = weights(seed, EMBEDDING)
    return {**content, HEAD: content[EMBEDDING]}


def test_a_weight_that_is_tied_on_one_side_only_is_compared(tmp_path):
    base, tuned = tied(0), weights(1, EMBEDDING, HEAD)
    pair = open_pair(base, tuned)
    assert torch.equal(pair.increment(HEAD), tuned[HEAD] - base[EMBEDDING])
    assert notes(pair) == {HEAD: f"the base checkpoint ties it to {EMBEDDING}"}
    assert notes(open_pair(tuned, base)) == {
        HEAD: f"the fine-tuned checkpoint ties it to {EMBEDDING}"
    }


@pytest.mark.parametrize("bases_is_whole", [True, False])
def test_a_tied_weight_that_the_other_file_leaves_out_is_compared_once(bases_is_whole):
    sides = (tied(0), weights(1, EMBEDDING))
    pair = open_pair(*(sides if bases_is_whole else sides[::-1]))
    assert {one.name: one.reason for one in pair.skipped} == {HEAD: f"tied to {EMBEDDING}"}
    assert HEAD not in pair.names


def test_an_adapter_does_not_hold_a_head_that_was_compared_by_the_embedding(tmp_path):
    base = folder_of(tmp_path / "base", weights(0, EMBEDDING))
    found = extract(base, folder_of(tmp_path / "tuned", weights(1, EMBEDDING, HEAD)), rank=2)
    assert [one.name for one in found.matrices] == ["model.layers.0.q.weight"]
    (head,) = (one for one in found.skipped if one.name == HEAD)
    assert head.reason.startswith("not the same layer: the base checkpoint has no lm_head.weight")

"""A fine-tune whose linear layers are coded: what is added to the base."""

import copy
from types import SimpleNamespace

import pytest
import torch

from experiments.coded import coded_models, linear_layers
from experiments.minilm import answers


@pytest.fixture
def loaded():
    """A function that loads the base, or a fine-tune that changed one of two layers and a bias."""
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 16))
    tuned = copy.deepcopy(base)
    tuned[0].weight.data += torch.randn(32, 16) / 10
    tuned[1].bias.data += 1
    return lambda side: copy.deepcopy({"base": base, "tuned": tuned}[side])


def test_signs_and_a_scale_are_added_to_the_layers_that_changed(loaded):
    base = loaded("base")
    delta = (loaded("tuned")[0].weight - base[0].weight).detach()
    found = list(coded_models(loaded, (0.5, 1.0), ("BitDelta",)))
    assert [known["transform"] for known, _ in found] == ["none", "dct", "random"]
    assert {known["bits"] for known, _ in found} == {1.0}  # there is no half a sign
    (known, model), *_ = found
    added = (model[0].weight - base[0].weight).detach()
    torch.testing.assert_close(added, delta.sign() * delta.abs().mean(), atol=1e-6, rtol=1e-4)
    assert known["retained"] == pytest.approx(
        1 - float((added - delta).square().sum() / delta.square().sum()), abs=1e-5
    )
    assert torch.equal(model[1].weight, base[1].weight)
    assert torch.equal(model[1].bias, base[1].bias)


def test_many_bits_leave_the_linear_layers_of_the_fine_tune(loaded):
    goal = linear_layers(loaded)
    assert torch.equal(goal[0].weight, loaded("tuned")[0].weight)
    assert torch.equal(goal[1].bias, loaded("base")[1].bias)
    for known, model in coded_models(loaded, (12.0,), ("entropy-coded",)):
        assert known["retained"] > 0.99
        torch.testing.assert_close(model[0].weight, goal[0].weight, atol=0.02, rtol=0)


class Echo(torch.nn.Module):
    """A model that answers with the first token."""

    def forward(self, input_ids, **_):
        logits = torch.nn.functional.one_hot(input_ids[:, 0], 10).float()
        return SimpleNamespace(logits=logits)


def tokens(texts, **_):
    """Each digit is a token."""
    longest = max(map(len, texts))
    ids = torch.tensor([[int(one) for one in text.ljust(longest, "0")] for text in texts])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_answers_are_in_the_order_of_the_texts():
    firsts = [int(one) for one in torch.randint(10, (70,), generator=torch.manual_seed(1))]
    texts = [(str(first) + "1" * (7 * i % 50), first) for i, first in enumerate(firsts)]
    assert answers(Echo(), tokens, texts).tolist() == firsts

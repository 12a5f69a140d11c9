"""A fine-tune whose linear layers are coded: what is added to the base, and what is stored."""

import copy
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from experiments.extracted import coded_models, main
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
    coded = list(coded_models(loaded, (0.5, 1.0), ("BitDelta",)))
    assert [fields["transform"] for fields, _ in coded] == ["none", "dct", "random"]
    assert {fields["bits"] for fields, _ in coded} == {1.0}  # half a sign does not exist
    (fields, model), *_ = coded
    added = (model[0].weight - base[0].weight).detach()
    torch.testing.assert_close(added, delta.sign() * delta.abs().mean(), atol=1e-6, rtol=1e-4)
    assert fields["retained"] == pytest.approx(
        1 - float((added - delta).square().sum() / delta.square().sum()), abs=1e-5
    )
    assert torch.equal(model[1].weight, base[1].weight)
    assert torch.equal(model[1].bias, base[1].bias)


def test_what_coded_layers_answer_is_stored_beside_the_layers_as_they_are(
    loaded, tmp_path, monkeypatch
):
    inputs = torch.randn(40, 16, generator=torch.Generator().manual_seed(1))
    pair = SimpleNamespace(seed=3, loaded=loaded, answers=lambda model: model(inputs).argmax(1))
    layers = loaded("tuned")
    layers[1].bias.data -= 1
    pair.labels = pair.answers(layers)
    monkeypatch.setattr("experiments.extracted.Pair", lambda *_: pair)
    result = CliRunner().invoke(main, [str(tmp_path), "--bits", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    table = pd.read_parquet(tmp_path / "coded.parquet").set_index("method")
    assert table.loc["linear layers", "accuracy"] == table.loc["fine-tune", "agreement"] == 1
    same = (pair.answers(loaded("base")) == pair.labels).double().mean()
    assert table.loc["base", "accuracy"] == float(same) < table.loc["BitDelta", "accuracy"].min()


class Echo(torch.nn.Module):
    """A model that answers with the first token."""

    def forward(self, input_ids, **_):
        logits = torch.nn.functional.one_hot(input_ids[:, 0], 10).float()
        return SimpleNamespace(logits=logits)


def tokens(texts, **_):
    """Each digit is a token."""
    longest = max(map(len, texts))
    ids = torch.tensor([[int(digit) for digit in text.ljust(longest, "0")] for text in texts])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_answers_are_in_the_order_of_the_texts():
    firsts = [int(first) for first in torch.randint(10, (70,), generator=torch.manual_seed(1))]
    texts = [(str(first) + "1" * (7 * i % 50), first) for i, first in enumerate(firsts)]
    assert answers(Echo(), tokens, texts).tolist() == firsts

"""The study of merged adapters: merges by PEFT with a known truth, and numbers of the page."""

import copy

import peft
import pytest
import torch
from transformers import BertConfig, BertModel

from experiments.unmerged import merges, negatives
from experiments.unmerged.__main__ import computed
from loca_theory.rounding import find_format
from loca_theory.sweeps import Runner

SIZES = {"vocab_size": 50, "hidden_size": 96, "intermediate_size": 64}
LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
TINY = BertConfig(**SIZES, **LAYERS)
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.fixture
def tiny(monkeypatch):
    torch.manual_seed(0)
    model = BertModel(TINY, add_pooling_layer=False)
    monkeypatch.setattr(merges, "encoder", lambda kind: copy.deepcopy(model).to(kind))
    return model


def adapter(model, config):
    """A random adapter of a model, with the increments that PEFT computes."""
    adapted = peft.get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=2e-3)
    layers = {
        name.removeprefix("base_model.model."): layer.get_delta_weight("default")
        for name, layer in adapted.named_modules()
        if isinstance(layer, peft.tuners.lora.Linear)
    }
    return peft.get_peft_model_state_dict(adapted), layers


def test_each_merge_is_unmerged_beside_the_truth(tiny):
    config = peft.LoraConfig(r=2, lora_alpha=6, target_modules=["query", "value"])
    factors, deltas = adapter(tiny, config)
    changes = merges.increments(factors, 3.0)
    assert {f"{name}.weight" for name in deltas} == set(changes)
    for name, delta in deltas.items():
        assert torch.allclose(changes[f"{name}.weight"].float(), delta, atol=1e-9)
    rows = list(merges.lora_rows(config, factors))
    assert len(rows) == 2 * 3 * 2
    assert [row["found_rank"] for row in rows] == [2] * len(rows)
    assert all(row["error"] < row["error_svd"] / 4 for row in rows)
    exact = [row for row in rows if row["merge"] == "float32 adapter"]
    assert {row["recipe"] for row in exact} == {"exact"}
    assert min(row["identical"] for row in exact) > 0.999
    form, row = find_format("bfloat16"), exact[0]
    weight = tiny.bfloat16().state_dict()[row["name"]]
    steps = form.steps(weight.double()).median()
    assert row["steps"] == pytest.approx(float(changes[row["name"]].abs().median() / steps))


def test_changes_of_all_weights_are_not_claimed():
    torch.manual_seed(0)
    base = {"layer.weight": torch.randn(64, 80).bfloat16()}
    tuned = {"layer.weight": (base["layer.weight"].float() + 0.01 * torch.randn(64, 80)).bfloat16()}
    (row,) = negatives.claims("noise", base, tuned)
    assert (row["kind"], row["form"], row["found_rank"]) == ("noise", None, None)


def test_a_finished_part_is_not_computed_again(tmp_path):
    calls = []

    def measure():
        calls.append(1)
        yield {"found_rank": 3, "error": None}

    table = [({"rank": 3}, measure)]
    rows = [computed("adapters", table, Runner(tmp_path, 1, progress=False)) for _ in range(2)]
    assert rows == [[{"found_rank": 3, "error": None}]] * 2
    assert calls == [1]

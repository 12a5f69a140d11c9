"""A LoCA adapter converted to LoRA by PEFT, beside the truncated SVD of its increment."""

import numpy as np
import pytest
import torch
from peft import PeftModel, convert_to_lora, get_peft_model, save_as_lora

from loca_theory.adapters import LoCAConfig, LoCALayer

from .tiny_models import gpt2, llama, of_peft

pytestmark = of_peft


# GPT-2 has layers that store their weight transposed, (inputs, outputs).
BASES = {"Llama": llama, "GPT-2": gpt2}
BOTH = pytest.mark.parametrize("family", BASES)


def adapted(family, n_frequency=12, **options):
    config = LoCAConfig(
        n_frequency=n_frequency,
        fan_in_fan_out=family == "GPT-2",
        init_weights=False,
        task_type="CAUSAL_LM",
        **options,
    )
    return get_peft_model(BASES[family](), config).eval()


def increments(model):
    """ΔW (p, q) of each layer."""
    return {
        name: layer.spectrum("default").increment().detach().double().numpy()
        for name, layer in model.named_modules()
        if isinstance(layer, LoCALayer)
    }


def products(state):
    """B A of each layer."""
    return {
        name.removesuffix(".lora_A.weight"): (
            state[name.replace("lora_A", "lora_B")].double() @ state[name].double()
        ).numpy()
        for name in state
        if "lora_A" in name
    }


def truncated(delta, rank):
    u, s, v = np.linalg.svd(delta)
    return u[:, :rank] * s[:rank] @ v[:rank]


def logits(model):
    ids = torch.randint(4, 40, (2, 7), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return model(input_ids=ids).logits


def same(found, expected):
    """Up to an SVD in float32: 6e-8 times the root of the number of entries, and the largest."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@BOTH
@pytest.mark.parametrize("rank", [1, 4])
def test_a_fixed_rank_is_the_truncated_svd(family, rank):
    model = adapted(family)
    config, state = convert_to_lora(model, rank=rank)
    deltas, found = increments(model), products(state)
    assert found.keys() == deltas.keys()
    assert config.r == config.lora_alpha == rank
    for name, delta in deltas.items():
        same(found[name], truncated(delta, rank))


@BOTH
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False but:UserWarning")  # of PEFT
def test_a_saved_conversion_is_loaded_as_lora(family, tmp_path):
    model = adapted(family)
    save_as_lora(tmp_path, model, rank=8)
    loaded = PeftModel.from_pretrained(BASES[family](), tmp_path).eval()
    assert loaded.peft_config["default"].peft_type == "LORA"
    expected = adapted(family)
    with torch.no_grad():
        for name, layer in expected.named_modules():
            if isinstance(layer, LoCALayer):
                delta = truncated(increments(model)[name], 8)
                delta = torch.tensor(delta, dtype=torch.float32)
                layer.base_layer.weight += delta.T if family == "GPT-2" else delta
        with expected.disable_adapter():
            torch.testing.assert_close(logits(loaded), logits(expected), rtol=1e-4, atol=1e-4)

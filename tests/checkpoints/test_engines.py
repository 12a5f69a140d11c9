"""Extracted LoRA in other software: each engine's own scale gives the same increment."""

import json

import pytest
from safetensors.torch import load_file

from loca_theory.checkpoints import demo_pair, extract
from loca_theory.checkpoints.weights.files import SafetensorsFile


def scales(config, module, rank, *, with_vllm):
    """By what PEFT, llama.cpp and vLLM multiply factors of a rank: α over the rank that each reads.

    PEFT reads it in a pattern or as r, llama.cpp from the tensors, vLLM as r.
    """
    of_peft = config["rank_pattern"].get("^" + module.replace(".", r"\."), config["r"])
    assert of_peft == rank
    assert not config.get("alpha_pattern")
    found = {config["lora_alpha"] / of_peft, config["lora_alpha"] / rank}
    if with_vllm:
        # It accepts no larger factors, and no modules that are stored whole.
        assert rank <= config["r"]
        assert config["modules_to_save"] is None
        found.add(config["lora_alpha"] / config["r"])
    return found


SIZES = {
    "uniform": {"rank": 5},
    "some clipped": {"rank": 8},  # the head has 5 rows
    "split": {"allocate": 9000},
    "half": {"allocate": "40kB", "dtype": "float16"},
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("serve", [None, "vllm"])
def test_every_engine_that_the_card_names_gets_the_same_increment(tmp_path, size, serve):
    base, tuned = demo_pair()
    found = extract(base, tuned, "lora", serve=serve, **SIZES[size])
    found.save(tmp_path)
    folder = tmp_path / "lora"
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    factors = load_file(folder / "adapter_model.safetensors")
    card = (folder / "README.md").read_text(encoding="utf-8")
    is_uniform = serve == "vllm" or size == "uniform"
    assert ("PEFT, llama.cpp and vLLM read it" in card) == is_uniform
    before, after = SafetensorsFile(base), SafetensorsFile(tuned)
    ranks = set()
    for row in found.matrices:
        if not row.numbers:
            continue
        module = row.name.removesuffix(".weight")
        a, b = (factors[f"base_model.model.{module}.lora_{one}.weight"].double() for one in "AB")
        change = after.load(row.name).double() - before.load(row.name).double()
        for scale in scales(config, module, len(a), with_vllm=is_uniform):
            left = change - scale * (b @ a)
            error = float(left.square().sum() / change.square().sum())
            assert error == pytest.approx(row.error, rel=1e-5, abs=1e-6)
        ranks.add(len(a))
    assert (len(ranks) == 1) == is_uniform

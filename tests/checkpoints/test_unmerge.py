"""The adapter of a merged checkpoint, against the merge that PEFT made."""

import copy
import json
import math

import peft
import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import loca_theory as loca
from loca_theory import InvalidArgumentError
from loca_theory.adapters import LoCAConfig
from loca_theory.checkpoints import unmerge
from loca_theory.rounding import Guess, Recipe, find_adapter
from loca_theory.transforms import idct2

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False:UserWarning"),
]
LLAMA = LlamaConfig(
    vocab_size=64,
    hidden_size=128,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
GPT2 = GPT2Config(vocab_size=64, n_embd=96, n_layer=1, n_head=4, n_positions=32)
TARGETS = {LlamaForCausalLM: ["q_proj", "v_proj"], GPT2LMHeadModel: ["c_attn"]}
CLASSES = [(LlamaForCausalLM, LLAMA), (GPT2LMHeadModel, GPT2)]


def merged(model, config, size=3e-3):
    """A copy of a model with a random adapter that PEFT has merged into it."""
    torch.manual_seed(1)
    adapted = peft.get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=size)
            elif "loca_spectrum" in name:
                parameter.normal_(std=100 * size)
    return adapted.merge_and_unload()


@pytest.fixture(scope="module")
def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LLAMA).bfloat16()


@pytest.mark.parametrize(("kind", "settings"), CLASSES, ids=["Llama", "GPT-2"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_adapter_comes_back_and_gives_the_stored_weights_to_the_bit(
    kind, settings, dtype, tmp_path
):
    """PEFT loads what was saved into the base, and merges it as it did before."""
    torch.manual_seed(0)
    base = kind(settings).to(dtype)
    ranks = {"rank_pattern": {"0.*v_proj": 2}} if kind is LlamaForCausalLM else {}
    config = peft.LoraConfig(r=3, lora_alpha=6, target_modules=TARGETS[kind], **ranks)
    tuned = merged(base, config)
    result = unmerge(base, tuned)
    expected = {
        f"{name}.weight": 2 if ranks and name.endswith("0.self_attn.v_proj") else 3
        for name, _ in base.named_modules()
        if name.endswith(tuple(TARGETS[kind]))
    }
    assert {row.name: row.rank for row in result.layers} == expected
    assert {row.recipe for row in result.layers} == {"exact"}
    assert {row.form for row in result.layers} == {"LoRA"}
    assert min(row.held_out for row in result.layers) > 0.6
    assert result.changed_outside == []
    assert result.identical > 0.998 > 0.95 > result.identical_svd

    result.save(tmp_path)
    adapted = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "lora")
    remerged = adapted.merge_and_unload().state_dict()
    entries = same = 0
    for name, weight in tuned.state_dict().items():
        if name in expected:
            entries, same = entries + weight.numel(), same + int((weight == remerged[name]).sum())
        else:
            assert torch.equal(weight, remerged[name]), name
    # PEFT's product of B and A adds in another order.
    assert abs(same / entries - result.identical) < 1e-3
    loaded = loca.Unmerged.load(tmp_path)
    assert loaded.layers == result.layers


@pytest.mark.parametrize(("kind", "settings"), CLASSES, ids=["Llama", "GPT-2"])
def test_loca_comes_back_and_gives_the_stored_weights_to_the_bit(kind, settings, tmp_path):
    torch.manual_seed(0)
    base = kind(settings).bfloat16()
    config = LoCAConfig(n_frequency=150, target_modules=TARGETS[kind])
    tuned = merged(base, config)
    result = unmerge(base, tuned)
    assert {row.form for row in result.layers} == {"LoCA"}
    assert {row.rank for row in result.layers} == {None}
    assert all(0.93 * 150 <= row.components <= 1.03 * 150 for row in result.layers)
    assert result.identical > 0.998 > 0.96 > result.identical_svd
    assert "The base and a change of 1" in result.verdict
    assert "by the largest coefficients of the difference" in result.verdict

    result.save(tmp_path)
    assert not (tmp_path / "lora").exists()
    adapted = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "loca")
    remerged = adapted.merge_and_unload().state_dict()
    entries = same = 0
    for name, weight in tuned.state_dict().items():
        if name in {row.name for row in result.layers}:
            entries, same = entries + weight.numel(), same + int((weight == remerged[name]).sum())
        else:
            assert torch.equal(weight, remerged[name]), name
    # The layer's cosine transform adds in another order.
    assert abs(same / entries - result.identical) < 1e-3


def test_layers_of_either_form_are_two_adapters(llama, tmp_path):
    """Queries of low rank, values of cosine components."""
    once = merged(llama, peft.LoraConfig(r=3, target_modules=["q_proj"]))
    tuned = merged(once, LoCAConfig(n_frequency=100, target_modules=["v_proj"]))
    result = unmerge(llama, tuned)
    forms = {row.name.rpartition("self_attn.")[2]: row.form for row in result.layers}
    assert forms == {"q_proj.weight": "LoRA", "v_proj.weight": "LoCA"}
    assert list(result.adapters) == ["lora", "loca"]
    names = {path.relative_to(tmp_path).parts[0] for path in result.save(tmp_path)}
    assert {"lora", "loca"} <= names
    assert (
        "a change of rank 3 in q_proj of 2 layers, as of a merged LoRA (exact), and a "
        in result.verdict
    )
    assert "as of a merged LoCA (exact)" in result.verdict
    with pytest.raises(InvalidArgumentError, match="two adapters, lora and loca; take one"):
        result.state_dict()


@pytest.mark.parametrize("forms", [("lora",), ("lora", "loca")])
def test_the_code_of_the_card_loads_the_adapters(llama, tmp_path, forms):
    tuned = merged(llama, peft.LoraConfig(r=3, target_modules=["q_proj"]))
    if "loca" in forms:
        tuned = merged(tuned, LoCAConfig(n_frequency=100, target_modules=["v_proj"]))
    llama.save_pretrained(tmp_path / "base")
    tuned.save_pretrained(tmp_path / "merged")
    base, checkpoint = (tmp_path / name / "model.safetensors" for name in ("base", "merged"))
    result = unmerge(base, checkpoint)
    result.save(tmp_path)
    card = (tmp_path / "lora" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: peft\n---\n"), "the hub refuses a path as a base"
    assert "how the merge rounded: *exact*, the sum once;" in card
    assert "A truncated SVD is the best approximation of the stored difference" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace("PATH_OR_NAME_OF_THIS_ADAPTER", str(tmp_path / "lora"))
    scope = {}
    exec(code.replace("PATH/", f"{tmp_path}/"), scope)
    remerged = scope["model"].merge_and_unload().state_dict()
    for name, weight in tuned.state_dict().items():
        assert (weight == remerged[name]).double().mean() > 0.99, name


def test_factors_in_half_precision_say_what_merging_them_gives(llama, tmp_path):
    tuned = merged(llama, peft.LoraConfig(r=3, target_modules=["q_proj"]), size=3e-2)
    result = unmerge(llama, tuned, dtype="bfloat16")
    assert result.identical < 0.99 < 0.998 < result.identical_unrounded
    assert f"in bfloat16, {result.identical:.2%} of the" in result.verdict
    assert f"(in float32 {result.identical_unrounded:.2%})" in result.verdict
    assert {tensor.dtype for tensor in result.state_dict().values()} == {torch.bfloat16}
    result.save(tmp_path)
    adapted = peft.PeftModel.from_pretrained(copy.deepcopy(llama), tmp_path / "lora")
    remerged = adapted.merge_and_unload().state_dict()
    names = [row.name for row in result.layers]
    same = [float((tuned.state_dict()[name] == remerged[name]).double().mean()) for name in names]
    assert abs(sum(same) / len(same) - result.identical) < 1e-3


WIDE = LlamaConfig(
    vocab_size=64,
    hidden_size=256,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
)


@pytest.mark.parametrize("is_safe", [False, True], ids=["plain", "safe"])
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "half"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_one_recipe_of_peft_gives_the_bits_of_all_layers_back(dtype, is_half, is_safe, tmp_path):
    """Changes of 0.3 to 10 steps; of the smallest, merges by both recipes give all bits back."""
    torch.manual_seed(0)
    base = LlamaForCausalLM(WIDE).to(dtype)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS[LlamaForCausalLM])
    adapted = peft.get_peft_model(copy.deepcopy(base), config, autocast_adapter_dtype=not is_half)
    step = 1 if dtype is torch.bfloat16 else 1 / 8
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                size = 3e-4 if "v_proj" in name else 3e-3 * (1 + int(name.split("layers.")[1][0]))
                parameter.normal_(std=size * step)
    tuned = adapted.merge_and_unload(safe_merge=is_safe)
    result = unmerge(base, tuned)
    assert [row.rank for row in result.layers] == [4] * 6
    recipe = "rounded increment" if is_half or is_safe else "exact"
    assert {row.recipe for row in result.layers} == {recipe}
    assert f"of 3 layers, as of a merged LoRA ({recipe})" in result.verdict

    result.save(tmp_path)
    adapter = peft.PeftModel.from_pretrained(copy.deepcopy(base), tmp_path / "lora")
    remerged = adapter.merge_and_unload(safe_merge=recipe != "exact").state_dict()
    names = [row.name for row in result.layers]
    same = [float((tuned.state_dict()[name] == remerged[name]).double().mean()) for name in names]
    # Of 65,536 entries each; PEFT's product of B and A adds in another order.
    assert abs(sum(same) / len(same) - result.identical) < 2e-4
    assert result.identical > 0.9997


def test_layers_that_contradict_the_recipe_of_the_others_are_named():
    """Increments rounded in one of four layers, of many steps each."""
    base, tuned = deep(4, {})
    for i in range(4):
        name = f"layers.{i}.q.weight"
        change = 0.1 * torch.randn(96, 2) @ torch.randn(2, 128)
        added = change.bfloat16().double() if i == 3 else change.double()
        tuned[name] = (base[name].double() + added).bfloat16()
    result = unmerge(base, tuned)
    recipes = [row.recipe for row in result.layers]
    assert recipes == ["exact"] * 3 + ["rounded increment"]
    assert "(exact, but rounded increment in layers.3.q)" in result.verdict


# --- many layers, and interrupted runs ---


def deep(count, sizes):
    """State dicts of layers of one kind, some with a change of a rank, or of components."""
    torch.manual_seed(0)
    base = {f"layers.{i}.q.weight": (0.05 * torch.randn(96, 128)).bfloat16() for i in range(count)}
    tuned = dict(base)
    for i, (form, size) in sizes.items():
        if form == "LoRA":
            change = 5e-3 * torch.randn(96, size) @ torch.randn(size, 128)
        else:
            spectrum = torch.zeros(96 * 128)
            spectrum[torch.randperm(96 * 128)[:size]] = 0.2 * torch.randn(size)
            change = idct2(spectrum.view(96, 128))
        name = f"layers.{i}.q.weight"
        tuned[name] = (base[name].float() + change).bfloat16()
    return base, tuned


@pytest.fixture
def searches(monkeypatch):
    """The layers that were searched, with their guesses, and whether for components as well."""
    calls = []

    def recorded(base, tuned, **options):
        if options:  # without any, the sides are exchanged
            calls.append(options)
        return find_adapter(base, tuned, **options)

    monkeypatch.setattr("loca_theory.checkpoints.unmerging.search.find_adapter", recorded)
    return calls


def sizes_of(result):
    return {
        int(row.name.split(".")[1]): (row.form, row.rank or row.components) for row in result.layers
    }


def test_of_a_kind_one_layer_is_searched_and_the_others_verified(searches):
    ranks = dict.fromkeys(range(1, 6), ("LoRA", 2)) | {5: ("LoRA", 3)}
    result = unmerge(*deep(7, ranks))
    assert sizes_of(result) == ranks
    assert [row.name for row in result.layers] == [f"layers.{i}.q.weight" for i in range(1, 6)]
    guesses = [call["guess"] for call in searches]
    assert guesses == [None, *[Guess(2, Recipe.EXACT)] * 4]
    assert [call["with_cosines"] for call in searches] == [True, *[False] * 4]


def test_two_changed_layers_of_a_kind_are_searched_for_both_forms(searches):
    """In the first two, from the middle, nothing is found."""
    base, tuned = deep(6, {1: ("LoRA", 2), 5: ("LoRA", 2)})
    for i in (2, 3, 4):
        name = f"layers.{i}.q.weight"
        tuned[name] = (base[name].float() + 5e-3 * torch.randn(96, 128)).bfloat16()
    result = unmerge(base, tuned)
    nothing = (None, None)
    expected = {1: ("LoRA", 2), 2: nothing, 3: nothing, 4: nothing, 5: ("LoRA", 2)}
    assert sizes_of(result) == expected
    assert sorted(call["with_cosines"] for call in searches) == [False, False, False, True, True]
    assert "3 of 5 layers: neither of low rank nor of few cosine components." in result.verdict


def test_an_interrupted_run_continues(tmp_path, searches):
    pair = deep(3, {0: ("LoRA", 2), 1: ("LoCA", 100), 2: ("LoRA", 2)})
    for name, side in zip(("base", "tuned"), pair, strict=True):
        save_file(side, tmp_path / f"{name}.safetensors")
    pair = tmp_path / "base.safetensors", tmp_path / "tuned.safetensors"
    first = unmerge(*pair, runner=loca.Runner(tmp_path / "points", 1))
    count = len(searches)
    assert count >= 3
    resumed = unmerge(*pair, runner=loca.Runner(tmp_path / "points", 1))
    assert len(searches) == count
    assert resumed.layers == first.layers
    for key, adapter in first.adapters.items():
        for name, tensor in adapter.tensors.items():
            assert torch.equal(tensor, resumed.adapters[key].tensors[name])
    stored = sorted((tmp_path / "points").glob("*.json"))[0]
    stored.write_text(stored.read_text()[:50])
    unmerge(*pair, runner=loca.Runner(tmp_path / "points", 1))
    assert len(searches) == count + 1


# --- without a claim ---


def test_the_verdict_says_what_was_merged(llama):
    config = peft.LoraConfig(r=3, target_modules=TARGETS[LlamaForCausalLM])
    result = unmerge(llama, merged(llama, config), include="proj")
    sentence = (
        "The base and a change of rank 3 in q_proj and v_proj of 2 layers, as of a merged LoRA"
    )
    assert result.verdict.startswith(sentence)
    assert "are the same to the bit" in result.verdict
    row = result.to_json()["rows"][0]
    fields = {"name", "rank", "form", "recipe", "inside", "held_out", "identical"}
    assert fields | {"identical_svd", "unknowns"} <= row.keys()


def full(model):
    """A fine-tune of all weights, of no low rank."""
    tuned = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in tuned.named_parameters():
            if name.endswith("q_proj.weight"):
                parameter += 1e-3 * torch.randn_like(parameter)
    return tuned


def dora(model):
    config = peft.LoraConfig(r=3, target_modules=["q_proj"], use_dora=True)
    return merged(model, config)


@pytest.mark.parametrize(
    ("steps", "maker"),
    [
        (1, "as of a merged LoRA (exact)"),
        (2, "or steps of plain SGD (rounded twice)"),
    ],
)
def test_steps_of_gradient_descent_have_a_rank_and_are_not_said_to_be_a_lora(steps, maker):
    """One step of few tokens in float32, and two that round the weights in between."""
    torch.manual_seed(0)
    base = (0.02 * torch.randn(256, 256)).bfloat16()
    tuned = base
    for _ in range(steps):
        inputs, outputs = torch.randn(2, 256), torch.randn(256, 2)
        tuned = (tuned.double() - 3e-3 * (outputs @ inputs).double()).bfloat16()
    result = unmerge(*matrices(base, tuned))
    assert [row.rank for row in result.layers] == [2 * steps]
    assert f"a change of rank {2 * steps} in q_proj of 1 layer, as of " in result.verdict
    assert maker in result.verdict


def tiny(model):
    """A LoRA of which the rounding leaves too few entries."""
    return merged(model, peft.LoraConfig(r=16, target_modules=["q_proj"]), size=1e-5)


@pytest.mark.parametrize("tune", [full, dora, tiny], ids=lambda tune: tune.__name__)
def test_nothing_is_claimed_of_other_changes(tune, llama, tmp_path):
    result = unmerge(llama, tune(llama))
    assert result.layers
    assert all(row.rank is None and row.identical is None for row in result.layers)
    assert not result.adapters
    assert result.identical is None
    assert len(result.layers) == 2
    # A layer that DoRA scaled may be undecided, or of neither form.
    assert " of 2 layers: " in result.verdict
    with pytest.raises(InvalidArgumentError, match=r"there is no adapter: [12] of 2 layers"):
        result.state_dict()
    result.save(tmp_path)
    assert not (tmp_path / "lora").exists()


def test_what_else_changed_is_named(llama):
    tuned = merged(llama, peft.LoraConfig(r=2, target_modules=["q_proj"]))
    with torch.no_grad():
        tuned.model.norm.weight += 0.5
        tuned.model.embed_tokens.weight += 0.5
    result = unmerge(llama, tuned)
    assert result.changed_outside == ["model.embed_tokens.weight", "model.norm.weight"]
    assert "embedding: not a linear layer" in {row.reason for row in result.skipped}


def test_an_unchanged_checkpoint_has_no_layer(llama):
    result = unmerge(llama, copy.deepcopy(llama))
    assert (result.layers, result.adapters) == ((), {})
    assert result.verdict == "No layer changed: both checkpoints store the same tensors."
    part = {name: weight for name, weight in llama.state_dict().items() if "layers.1" not in name}
    assert "tensors (only in the base checkpoint)" in unmerge(llama.state_dict(), part).verdict


def test_what_cannot_be_unmerged_is_refused(llama, tmp_path):
    config = peft.LoraConfig(r=2, target_modules=["q_proj"])
    peft.get_peft_model(copy.deepcopy(llama), config).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError, match=f"{tmp_path} is an adapter .*; pass the merged"):
        unmerge(llama, tmp_path)
    with pytest.raises(InvalidArgumentError, match="no linear layer is left to look at"):
        unmerge(llama, full(llama), include="embed")
    with pytest.raises(InvalidArgumentError, match="dtype"):
        unmerge(llama, full(llama), dtype="int8")


def matrices(base, tuned, name="layers.0.q_proj.weight"):
    return {name: base}, {name: tuned}


def steep(rank, condition, size):
    """A change of singular values that fall by a factor from the first to the last."""
    torch.manual_seed(0)
    base = (0.02 * torch.randn(256, 256)).bfloat16()
    u, v = (torch.linalg.qr(torch.randn(256, rank)).Q for _ in range(2))
    change = u * torch.logspace(0, -math.log10(condition), rank) @ v.T
    change *= size / change.std()
    return base, (base.double() + change.double()).bfloat16()


def test_a_steep_spectrum_is_not_taken_for_two_roundings():
    (row,) = unmerge(*matrices(*steep(6, 100, 4e-4))).layers
    assert (row.rank, row.recipe) == (6, "exact")
    assert row.identical > 0.998


@pytest.mark.parametrize("size", [2e-4, 3e-4, 1e-3, 1e-2])
def test_swapped_sides_are_refused(size):
    """Also where the swapped pair nearly fits, and where nothing is found in it."""
    base, tuned = steep(4, 3, size)
    with pytest.raises(InvalidArgumentError, match=r"in 1 of 1 layer, the first .*; exchange the"):
        unmerge(*matrices(tuned, base))
    assert unmerge(*matrices(base, tuned)).layers[0].rank == 4


def test_swapped_sides_are_counted_in_every_layer_of_a_kind():
    base, tuned = deep(4, dict.fromkeys(range(4), ("LoRA", 2)))
    with pytest.raises(InvalidArgumentError, match="in 4 of 4 layers"):
        unmerge(tuned, base)


def test_nothing_is_claimed_of_some_layers_if_others_are_swapped():
    """Whichever side is passed as the base, the layers of the other direction are named."""
    base, tuned = steep(4, 3, 1e-3)
    names = "layers.0.q_proj.weight", "layers.0.v_proj.weight"
    sides = [dict(zip(names, pair, strict=True)) for pair in ((tuned, base), (base, tuned))]
    for pair, name in zip((sides, sides[::-1]), names, strict=True):
        with pytest.raises(InvalidArgumentError, match=f"in 1 of 2 layers, the first {name}"):
            unmerge(*pair)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_weights_of_eight_bits_are_looked_at(dtype):
    base, tuned = (side.float() for side in steep(4, 3, 1e-2))
    names = "layers.0.q_proj.weight", "norm.weight"
    pair = [
        dict(zip(names, (side.to(dtype), side[0].to(dtype)), strict=True)) for side in (base, tuned)
    ]
    result = unmerge(*pair)
    assert len(result.layers) == 1
    assert result.layers[0].format == str(dtype).removeprefix("torch.").removesuffix("fn")
    mixed = unmerge({name: value.float() for name, value in pair[0].items()}, pair[1])
    assert mixed.changed_outside == result.changed_outside


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_matrix_that_is_not_finite_is_left_out(side, value):
    sides = [matrix.clone() for matrix in steep(4, 3, 1e-3)]
    unchanged = [side.clone() for side in sides]
    sides[side][0, 0] = value
    names = "layers.0.q_proj.weight", "layers.1.q_proj.weight"
    pair = [
        dict(zip(names, matrices, strict=True)) for matrices in zip(sides, unchanged, strict=True)
    ]
    result = unmerge(*pair)
    (skipped,) = result.skipped
    assert skipped.reason == "not finite: 1 of 65536 entries are NaN or infinite"
    assert skipped.damaged
    assert [row.rank for row in result.layers] == [4]
    assert result.changed_outside == [names[0]]


def test_what_is_not_a_pair_of_floating_matrices_is_one_line():
    base, tuned = steep(4, 3, 1e-3)
    for before, after, message in (
        (base.to(torch.int8), tuned, "quantised"),
        (base, tuned.to(torch.int8), "quantised"),
        (base, tuned[:, :100], r"resized from 256x256 to 256x100\)\); pass two .* the same size"),
    ):
        with pytest.raises(InvalidArgumentError, match=message) as raised:
            unmerge(*matrices(before, after))
        assert "\n" not in str(raised.value)


def test_float32_hides_nothing():
    base, tuned = (side.float() for side in steep(4, 3, 1e-3))
    result = unmerge(*matrices(base, base + 1e-3 * torch.randn(256, 4) @ torch.randn(4, 256)))
    assert "rounding hides nothing" in result.verdict
    assert tuned.shape == base.shape


def test_layers_that_were_only_cast_have_not_changed(llama):
    wide = copy.deepcopy(llama).float()
    with torch.no_grad():
        for parameter in wide.parameters():
            parameter *= 1 + 1e-3 * torch.rand_like(parameter)
    cast = copy.deepcopy(wide).bfloat16()
    config = peft.LoraConfig(r=2, target_modules=["q_proj"])
    result = unmerge(wide, merged(cast, config))
    assert {row.name.rpartition(".self_attn.")[2] for row in result.layers} == {"q_proj.weight"}
    assert all(row.base_was_rounded and row.rank == 2 for row in result.layers)
    assert result.changed_outside == []
    analysis = loca.analyze(wide, merged(cast, config), ranks=2)
    assert {row.name for row in analysis.matrices} == {row.name for row in result.layers}
    json.dumps(analysis.to_json(), allow_nan=False)

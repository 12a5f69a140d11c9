"""Two checkpoints side by side: what is compared with what, and why the rest is not."""

import json
import pickle
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import safetensors
import torch
from safetensors.torch import save_file
from torch.nn import utils as nn_utils
from torch.nn.utils import parametrizations, prune

from loca_theory.checkpoints import extract
from loca_theory.checkpoints.change.opening import open_pair
from loca_theory.checkpoints.change.selection import MatrixSelection
from loca_theory.checkpoints.source.checkpoint import DamagedError
from loca_theory.checkpoints.source.open import open_checkpoint
from tests.checkpoints.files import folder_of, normal

NAME = "a.0.q.weight"
EXPERTS = "model.layers.0.mlp.experts.gate_up_proj"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def tensors(seed=0, shape=(20, 24), **tensors_besides):
    return {
        NAME: normal(*shape, seed=seed),
        "a.0.v.weight": normal(*shape, seed=seed + 10),
    } | tensors_besides


def as_memory(folder, *sides):
    return sides


def as_files(folder, *sides, save=save_file):
    paths = folder / "base", folder / "tuned"
    for path, content in zip(paths, sides, strict=True):
        save(content, path)
    return paths


as_pickles = partial(as_files, save=torch.save)


def reasons(pair):
    return {skipped.name: skipped.reason for skipped in pair.skipped}


def notes(pair):
    return {name: matrix.note for name, matrix in pair.matrices.items() if matrix.note}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float64]
)
def test_the_increment_is_the_difference_of_the_widened_weights(dtype):
    base, tuned = ({k: v.to(dtype) for k, v in tensors(seed).items()} for seed in (0, 1))
    pair = open_pair(base, tuned)
    assert list(pair.matrices) == list(base)
    assert not pair.is_from_files
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    change, weights = pair.increment(NAME), pair.weights(NAME)
    assert change.dtype == weights.dtype == wide
    assert torch.equal(change, tuned[NAME].to(wide) - base[NAME].to(wide))
    assert torch.equal(weights, base[NAME].to(wide))
    # The caller may overwrite both.
    change.zero_(), weights.zero_()
    assert torch.equal(pair.weights(NAME), base[NAME].to(wide))
    assert torch.equal(pair.increment(NAME), tuned[NAME].to(wide) - base[NAME].to(wide))
    assert pair.matrices[NAME].entry.dtype == str(dtype).removeprefix("torch.")
    double = {NAME: base[NAME].double()}
    assert open_pair(double, tuned).increment(NAME).dtype == torch.float64


def test_two_sides_further_apart_than_float32_reaches_have_an_increment():
    largest = torch.full((20, 24), 3e38)
    increment = open_pair({NAME: largest}, {NAME: -largest}).increment(NAME)
    assert torch.equal(increment, -2 * largest.double())


@pytest.mark.parametrize("longer", [0, 1], ids=["base", "tuned"])
@pytest.mark.parametrize("prefix", ["model.", "base_model.model.", "module."])
def test_a_prefix_of_either_side_is_found(longer, prefix):
    """It does not cost the names that match as they are."""
    sides, head = [tensors(0), tensors(1)], {HEAD: torch.ones(20, 24)}
    expected = sides[1][NAME] - sides[0][NAME]
    sides[longer] = {prefix + name: value for name, value in sides[longer].items()}
    base, tuned = ({**side, **head} for side in sides)
    pair = open_pair(base, tuned)
    assert pair.prefix == prefix
    assert list(pair.matrices) == list((base, tuned)[longer])
    assert torch.equal(pair.increment(prefix + NAME), expected)
    # Random numbers are drawn by the base's name.
    assert [pair.stored_name(name) for name in pair.matrices] == list(base)


# Shapes of a tensor in the base and in the fine-tune, and why it is not compared.
SHAPES = {
    "bias": ((20,), (20,), "not a matrix: 1 dimensions"),
    "stack": ((2,) * 6, (2,) * 6, "not a matrix: 6 dimensions"),
    "tiny": ((3, 400), (3, 400), "too small (a side below 16): 3x400"),
    "depthwise.weight": ((20, 1, 3, 3), (20, 1, 3, 3), "too small (a side below 16): 20x9"),
    "linear": ((30, 20), (32, 20), "resized from 30x20 to 32x20"),
    "wte.weight": ((30, 20), (33, 24), "resized from 30x20 to 33x24"),
    "mlp.experts.none": ((0, 20, 20), (0, 20, 20), "too small: 0x20x20"),
    # A header may declare any number of empty experts.
    "mlp.experts.thin": ((2**40, 20, 0), (2**40, 20, 0), "too small (a side below 16): 20x0"),
    EXPERTS: (
        (3, 20, 24),
        (4, 20, 24),
        "numbers of experts differ: 3 in the base, 4 in the fine-tuned checkpoint",
    ),
    "new": (None, (20, 20), "only in the fine-tuned checkpoint"),
    "gone": ((20, 20), None, "only in the base checkpoint"),
}


def test_what_cannot_be_compared_is_listed_with_its_reason():
    base, tuned = (
        tensors(i, **{name: torch.ones(row[i]) for name, row in SHAPES.items() if row[i]})
        for i in (0, 1)
    )
    base |= {"quantised": torch.ones(20, 20).char(), "wide": torch.ones(20, 20)}
    tuned |= {"quantised": torch.ones(20, 20).char(), "sparse": torch.eye(20).to_sparse()}
    tuned["wide"] = torch.ones(1).expand(10_000_000, 10_000_000)
    pair = open_pair(base, tuned)
    assert reasons(pair) == {name: reason for name, (_, _, reason) in SHAPES.items()} | {
        "quantised": "int8 is not a floating type: quantised, or not a weight",
        "sparse": "not a plain tensor: torch.sparse_coo on cpu",
        "wide": "declares more entries than the file holds",
    }
    assert [skipped.name for skipped in pair.skipped if skipped.damaged] == ["wide"]


@pytest.mark.parametrize("store", [as_files, as_pickles])
def test_a_pair_of_files_is_light_can_be_pickled_and_notices_a_change(tmp_path, store):
    wide = {"wide.weight": torch.ones(300, 300)}
    opened = open_pair(*store(tmp_path, tensors(0) | wide, tensors(1) | wide))
    before = opened.increment(NAME)
    content = pickle.dumps(opened)
    assert len(content) < 10_000
    copy = pickle.loads(content)
    assert copy.is_from_files
    assert torch.equal(copy.increment(NAME), before)
    assert copy.fingerprint(NAME) == opened.fingerprint(NAME)
    assert pickle.dumps(opened) == content
    store(tmp_path, tensors(0), tensors(1, shape=(20, 25)))
    with pytest.raises(DamagedError, match="changed"):
        pickle.loads(content).increment(NAME)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float32])
def test_the_fingerprint_covers_both_sides_their_types_and_the_rows_that_are_compared(
    tmp_path, dtype
):
    base, tuned = ({k: v.to(dtype) for k, v in tensors(seed).items()} for seed in (0, 1))
    embedding = torch.zeros(21, 24, dtype=dtype)
    changed = [
        (base, tuned),
        ({**base, NAME: tuned["a.0.v.weight"]}, tuned),
        (base, {**tuned, NAME: base["a.0.v.weight"]}),
        (base, {**tuned, NAME: tuned[NAME].double()}),
        ({**base, NAME: tuned[NAME]}, {**tuned, NAME: base[NAME]}),
    ]
    pairs = [open_pair(*sides) for sides in changed]
    assert len({pair.fingerprint("a.0.v.weight") for pair in pairs}) == 1
    prints = {pair.fingerprint(NAME) for pair in pairs} | {pairs[0].fingerprint("a.0.v.weight")}
    assert len(prints) == 1 + len(changed)
    assert {len(bytes.fromhex(fingerprint)) for fingerprint in prints} == {16}
    # Zeros in place of rows that one side lacks would change nothing else.
    sides = [{"wte.weight": embedding[:rows]} for rows in (20, 21)]
    assert len({open_pair(side, sides[0]).fingerprint("wte.weight") for side in sides}) == 2
    for store in (as_files, as_pickles):
        stored = open_pair(*store(tmp_path, base, tuned))
        assert stored.fingerprint(NAME) == pairs[0].fingerprint(NAME)


@pytest.mark.parametrize("store", [as_files, as_pickles, as_memory])
def test_each_expert_is_a_matrix_or_all_are_stacked(tmp_path, store):
    base, tuned = normal(3, 20, 24), normal(3, 20, 24, seed=1)
    sources = store(tmp_path, {EXPERTS: base}, {EXPERTS: tuned})
    pair = open_pair(*sources)
    assert list(pair.matrices) == [f"{EXPERTS}[{i}]" for i in range(3)]
    for i, (name, matrix) in enumerate(pair.matrices.items()):
        assert (matrix.shape, matrix.entry.shape) == ((20, 24), (3, 20, 24))
        assert torch.equal(pair.increment(name), tuned[i] - base[i])
        assert torch.equal(pair.weights(name), base[i])
    assert list(open_pair(*sources, MatrixSelection(include=r"\[1\]$")).matrices) == [
        f"{EXPERTS}[1]"
    ]
    stacked = open_pair(*sources, MatrixSelection(experts="stacked")).increment(EXPERTS)
    assert torch.equal(stacked, (tuned - base).reshape(60, 24))


def test_only_the_expert_is_read(tmp_path, monkeypatch):
    @contextmanager
    def without_whole_tensors(*args, **settings):
        with real(*args, **settings) as file:
            yield SimpleNamespace(get_slice=file.get_slice)

    content = {EXPERTS: normal(3, 20, 24)}
    pair, real = open_pair(*as_files(tmp_path, content, content)), safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", without_whole_tensors)
    increment = pair.increment(f"{EXPERTS}[1]")
    assert increment.untyped_storage().nbytes() == 20 * 24 * 4
    assert pair.fingerprint(f"{EXPERTS}[1]")


@pytest.mark.parametrize("name", [EMBEDDING, HEAD])
@pytest.mark.parametrize(("was", "now"), [(30, 33), (33, 30)])
def test_the_common_rows_of_a_resized_vocabulary_are_compared(name, was, now):
    base, tuned = normal(was, 20), normal(now, 20, seed=1)
    pair = open_pair({name: base}, {name: tuned})
    assert pair.matrices[name].shape == (30, 20)
    assert torch.equal(pair.increment(name), tuned[:30] - base[:30])
    assert torch.equal(pair.weights(name), base[:30])
    assert notes(pair) == {name: f"resized from {was} to {now} rows: the first 30 are compared"}


# Ties are compared once, also where only one of the files holds both.


def weights(seed, *names):
    content = {"model.layers.0.q.weight": normal(20, 20, seed=seed)}
    return content | {name: normal(30, 20, seed=seed + 10 * i) for i, name in enumerate(names, 1)}


def tied(seed):
    content = weights(seed, EMBEDDING)
    return {**content, HEAD: content[EMBEDDING]}


@pytest.mark.parametrize("base_lacks_it", [True, False])
@pytest.mark.parametrize(("held", "lacking"), [(EMBEDDING, HEAD), ("shared.weight", HEAD)])
def test_a_weight_that_one_side_lacks_is_compared_by_the_one_it_is_tied_to(
    base_lacks_it, held, lacking
):
    side, other = weights(0, held), weights(1, held, lacking)
    base, tuned = (side, other) if base_lacks_it else (other, side)
    pair = open_pair(base, tuned)
    after, before = tuned[held if lacking not in tuned else lacking], base.get(lacking, base[held])
    assert torch.equal(pair.increment(lacking), after - before)
    assert torch.equal(pair.weights(lacking), before)
    title = "base" if base_lacks_it else "fine-tuned"
    assert notes(pair) == {lacking: f"the {title} checkpoint ties it to {held}"}
    assert pair.skipped == []


CONFIGS = {
    "not tied": ({"tie_word_embeddings": False}, False),
    "text model not tied": ({"text_config": {"tie_word_embeddings": False}}, False),
    "a classifier": ({"architectures": ["LlamaForSequenceClassification"]}, False),
    "tied": ({"tie_word_embeddings": True, "architectures": ["GemmaForCausalLM"]}, True),
    "by default": ({"architectures": ["GPT2LMHeadModel"]}, True),
    "not a list": ({"architectures": 3, "text_config": 3}, True),
}


@pytest.mark.parametrize(("config", "is_tied"), CONFIGS.values(), ids=CONFIGS)
def test_the_configuration_may_say_that_a_head_is_not_tied(tmp_path, config, is_tied):
    base = folder_of(tmp_path / "base", weights(0, EMBEDDING, HEAD))
    tuned = weights(1, EMBEDDING)
    pair = open_pair(base, folder_of(tmp_path / "tuned", tuned, config))
    expected = {HEAD: "only in the base checkpoint"}
    assert reasons(pair) == ({} if is_tied else expected)
    # A classifier, or a bare model, has no head.
    bare = {name.removeprefix("model."): value for name, value in tuned.items()}
    for other in (tuned | {"score.weight": normal(30, 20)}, bare):
        assert reasons(open_pair(base, other)).items() >= expected.items()


def test_ties_that_memory_shows():
    base, tuned = tied(0), weights(1, EMBEDDING, HEAD)
    # An adapter could change either of two layers that the base holds as one.
    said = "not the same layer: the base checkpoint ties it to"
    assert reasons(extract(base, tuned, rank=2))[HEAD].startswith(said)
    pair = open_pair(base, tuned)
    assert torch.equal(pair.increment(HEAD), tuned[HEAD] - base[EMBEDDING])
    assert notes(pair) == {HEAD: f"the base checkpoint ties it to {EMBEDDING}"}
    swapped = {HEAD: f"the fine-tuned checkpoint ties it to {EMBEDDING}"}
    assert notes(open_pair(tuned, base)) == swapped
    # Tied on both sides, or left out by the other file: compared once.
    for sides in (
        (tied(0), tied(1)),
        (tied(0), weights(1, EMBEDDING)),
        (weights(1, EMBEDDING), base),
    ):
        pair = open_pair(*sides)
        assert reasons(pair) == {HEAD: f"tied to {EMBEDDING}"}
        assert HEAD not in pair.matrices


# Weights that torch computes from other tensors.


def parameters(parametrise, seed=0, dtype=torch.float32):
    """The state of a layer whose weight is parametrised, and the weight that it applies."""
    layer = torch.nn.Linear(24, 20, bias=False, dtype=dtype)
    layer.weight.data = normal(20, 24, seed=seed).to(dtype)
    layer = parametrise(layer).eval()
    state = {f"a.{name}": tensor.detach().clone() for name, tensor in layer.state_dict().items()}
    return state, layer.double()(torch.eye(24).double()).detach().T


STYLES = {"old": nn_utils.weight_norm, "new": parametrizations.weight_norm}
deprecated = pytest.mark.filterwarnings("ignore::FutureWarning")


@deprecated
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize(("base", "tuned"), [("old", "new"), ("new", None), (None, "old")])
def test_weights_of_weight_normalisation_are_compared_in_every_form(base, tuned, dim, dtype):
    (before, w), (after, w_tuned) = (
        parameters(
            partial(STYLES[style], dim=dim) if style else lambda tensors: tensors, seed, dtype
        )
        for seed, style in enumerate((base, tuned))
    )
    pair = open_pair(before, after)
    assert list(pair.matrices) == ["a.weight"]
    assert pair.skipped == []
    # Of a factor, a product and the difference, with one more for terms of higher order.
    tolerance = 4 * torch.finfo(dtype).eps * max(w.abs().max(), w_tuned.abs().max())
    increment = pair.increment("a.weight")
    torch.testing.assert_close(increment.double(), w_tuned - w, rtol=0, atol=tolerance)
    torch.testing.assert_close(pair.weights("a.weight").double(), w, rtol=0, atol=tolerance)
    assert increment.dtype == dtype


@deprecated
@pytest.mark.parametrize("factor", [3, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_length_of_a_direction_does_not_matter(factor, dtype):
    """W = g V / ‖V‖; a change of g does, and both are part of the fingerprint."""
    base, _ = parameters(nn_utils.weight_norm, dtype=dtype)
    longer = {**base, "a.weight_v": factor * base["a.weight_v"]}
    assert not open_pair(base, longer).increment("a.weight").any()
    twice = {**base, "a.weight_g": 2 * base["a.weight_g"]}
    pair = open_pair(base, twice)
    assert torch.equal(pair.increment("a.weight"), pair.weights("a.weight"))
    prints = {open_pair(base, tuned).fingerprint("a.weight") for tuned in (base, longer, twice)}
    assert len(prints) == 3


class Halved(torch.nn.Module):
    def forward(self, x):
        return x / 2


# Parametrisations that are not undone.
OTHERS = {
    "spectral norm": parametrizations.spectral_norm,
    "spectral norm, old": nn_utils.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "pruned": partial(prune.random_unstructured, name="weight", amount=0.5),
    "one of your own": lambda layer: nn_utils.parametrize.register_parametrization(
        layer, "weight", Halved()
    ),
}


@pytest.mark.parametrize("sides", ["both", "base", "tuned"])
@pytest.mark.parametrize("kind", OTHERS)
def test_other_parametrised_weights_are_left_out(kind, sides):
    plain, _ = parameters(lambda layer: layer)
    base, tuned = (
        parameters(OTHERS[kind], seed)[0] if sides in ("both", side) else plain
        for seed, side in enumerate(("base", "tuned"))
    )
    other = {NAME: normal(20, 24)}
    pair = open_pair(base | other, tuned | other)
    assert list(pair.matrices) == [NAME]
    way_out = "remove the parametrisation, save the model and pass the copy"
    assert reasons(pair) == {"a.weight": f"parametrised; {way_out}"}


def test_matrices_with_such_names_are_weights():
    """Of a gate and a value, say."""
    base, tuned = ({f"a.w_{end}": normal(20, 24, seed=seed) for end in "gv"} for seed in (0, 1))
    assert list(open_pair(base, tuned).matrices) == ["a.w_g", "a.w_v"]


def test_a_direction_whose_length_is_missing_is_not_a_weight(tmp_path):
    save_file({"a.weight_v": normal(20, 24)}, tmp_path / "1.safetensors")
    files = {"a.weight_g": "0.safetensors", "a.weight_v": "1.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.entries == {}
    assert str(checkpoint.left_out["a.weight"]).startswith(
        "a part of it cannot be read: a.weight_g: "
    )
    assert checkpoint.left_out["a.weight"].damaged

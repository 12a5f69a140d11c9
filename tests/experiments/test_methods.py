"""What each method trains, by hand, and that it trains that and nothing else."""

import pytest
import torch

from experiments.finetuning import training
from experiments.finetuning.adaptation import adapt, count
from experiments.finetuning.methods import Budget, find_method, methods
from loca_theory.errors import InvalidArgumentError

pytestmark = [
    # PEFT builds the sparse increments of SHiRA from indices that it made itself.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    # Runs of a few steps do not move locations far.
    pytest.mark.filterwarnings("ignore:the search for locations is over"),
]
# C3A has blocks whose size divides both P and Q, and the budgets below.
P, Q, LAYERS = 12, 24, 2
RUN = {name: method for name, method in methods().items() if method.kind != "not-run"}
SMALL = [name for name, method in RUN.items() if "small" in method.lowest]
BUDGETED = [name for name, method in RUN.items() if method.has_budget]
LOCA = [name for name, method in RUN.items() if method.kind == "loca"]


class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"query": torch.nn.Linear(Q, P), "back": torch.nn.Linear(P, Q)})
            for _ in range(LAYERS)
        )
        self.head = torch.nn.Linear(Q, 3)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer["back"](torch.tanh(layer["query"](x)))
        return self.head(x)


def tiny(name, r=2, *, targets=("query",), head="head"):
    torch.manual_seed(0)
    budget = Budget(r, 200)  # long enough for pruning and regrowing of LoCA's within its fraction
    return adapt(Tiny(), find_method(name), budget, targets=targets, head=head, seed=5)


def trained(name, r):
    """Numbers a layer, by hand."""
    numbers, kind = (P + Q) * r, methods()[name].kind
    if kind == "loca":
        return numbers // 2 if name == "loca-charged" else numbers
    start = max(r + 1, round(1.5 * r))
    exceptions = {"dora": numbers + P, "adalora": (P + Q + 1) * start}
    exceptions["vera"] = min(numbers - P, 256) + P
    return exceptions.get(kind, numbers)


# With r = 8, VeRA has its largest rank and LoCA all components.
@pytest.mark.parametrize("r", [2, 8])
@pytest.mark.parametrize("name", BUDGETED)
def test_trained_numbers_and_no_increment_at_first(name, r):
    model = tiny(name, r)
    counts = count(model, "head")
    assert counts["trained"] == LAYERS * trained(name, r)
    assert counts["head"] == 3 * (Q + 1)
    learns = name in LOCA and name != "loca-v1"
    assert counts["stored"] == (2 if learns else 1) * counts["trained"]
    x = torch.randn(4, Q, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    assert torch.allclose(model(x), Tiny()(x), atol=1e-6)


def test_trained_numbers_without_a_budget():
    total = sum(p.numel() for p in Tiny().parameters())
    assert count(tiny("full"), "head")["trained"] == total - 3 * (Q + 1)
    assert count(tiny("bitfit"), "head")["trained"] == LAYERS * (P + Q)
    assert count(tiny("linear-probing"), "head") == {"trained": 0, "head": 3 * (Q + 1), "stored": 0}


def test_a_coefficient_of_fourierft_weighs_as_much_as_one_of_loca():
    layer = tiny("fourierft").base_model.model.layers[0]["query"]
    with torch.no_grad():
        for i in range(20):
            layer.fourierft_spectrum["default"].zero_()
            layer.fourierft_spectrum["default"][i] = 1.0
            norm = float(layer.get_delta_weight("default").norm())
            # Locations that are their own conjugates are alone.
            assert norm == pytest.approx(1, abs=1e-5) or norm == pytest.approx(2**0.5, abs=1e-5)


MARKS = {
    **dict.fromkeys(("lora", "dora", "adalora"), "lora_"),
    "vera": "vera_lambda",
    **{name: f"{name}_" for name in ("fourierft", "waveft", "shira", "c3a", "loca")},
}
TARGETS = [f"blocks.{n}.{name}" for n in (0, 1) for name in ("query", "value")]


def added(layer, plain):
    """ΔW by what a layer of PEFT returns for the unit vectors, or of a layer trained itself."""
    if not hasattr(layer, "get_base_layer"):
        return layer.weight - plain.weight
    unit = torch.eye(plain.in_features)
    return (layer(unit) - plain(unit)).T


@pytest.mark.parametrize("name", SMALL)
def test_only_what_should_is_trained_and_increments_are_what_the_layers_add(begin, name):
    """Of the second run of a group, which shares its pretrained weights with the first."""
    group = begin(name, seeds=(0, 1), rate=3e-2, steps=6, every=6, tunes=True)
    run, kind = group.runs[1], methods()[name].kind
    old = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    group.train()
    parts = {n: n.split(".") for n in old}
    heads = {n for n, part in parts.items() if "head" in part and "original_module" not in part}
    allowed = {
        n
        for n, part in parts.items()
        if kind == "full"
        or (kind == "biases" and part[-1] == "bias")
        or any(piece.startswith(MARKS.get(kind, "?")) for piece in part)
    }
    parameters = dict(run.model.named_parameters())
    changed = {n for n, p in parameters.items() if not torch.equal(old[n], p)}
    assert heads <= changed <= heads | allowed
    assert (changed - heads) or kind == "head"
    assert {n for n, p in parameters.items() if p.requires_grad} <= heads | allowed
    plain = begin("linear-probing").runs[0].core
    state = {n: tensor.clone() for n, tensor in run.core.state_dict().items()}
    with torch.no_grad():
        run.model.eval()
        expected = {n: added(run.core.get_submodule(n), plain.get_submodule(n)) for n in TARGETS}
        increments = run.increments()
    assert list(increments) == TARGETS
    for n, increment in increments.items():
        torch.testing.assert_close(increment, expected[n], rtol=1e-4, atol=1e-5)
        assert (float(increment.norm()) > 1e-2) == (kind not in ("head", "biases"))
    assert all(torch.equal(state[n], w) for n, w in run.core.state_dict().items())


class Encoder(torch.nn.Module):
    """A plain model, whose runs have a forward pass each, as those of the task ``text``."""

    def __init__(self):
        super().__init__()
        self.query, self.value = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, inputs, labels):
        logits = self.head(inputs + torch.tanh(self.value(torch.tanh(self.query(inputs)))))
        from transformers.modeling_outputs import SequenceClassifierOutput

        loss = torch.nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


@pytest.fixture
def plain(begin, monkeypatch):
    """A group of runs of a plain model on made-up examples."""
    body = {n: w for n, w in Encoder().state_dict().items() if not n.startswith("head.")}

    def start(method, **options):
        def base_model(*_):
            model = Encoder()
            model.load_state_dict(body, strict=False)
            return model

        monkeypatch.setattr(training, "base_model", base_model)
        group = begin(method, **options)
        source = torch.Generator().manual_seed(0)
        inputs = torch.randn(330, 8, generator=source)
        tensors = {"inputs": inputs, "labels": inputs[:, :3].argmax(1)}
        cut = {"train": slice(0, 100), "validation": slice(100, 200), "test": slice(200, 330)}
        group.splits = {split: {n: t[s] for n, t in tensors.items()} for split, s in cut.items()}
        assert not group.is_small
        return group

    return start


@pytest.mark.parametrize("name", ["lora", "loca", "full", "adalora"])
def test_runs_of_any_model_have_the_same_result_in_any_group(plain, name):
    together = plain(name, seeds=(0, 1)).train()
    (alone,) = plain(name, seeds=(1,)).train()
    assert not alone["diverged"]
    assert together[1] == alone
    assert together[0]["loss"] != alone["loss"]


def test_adalora_ends_with_its_budget(plain):
    group = plain("adalora", rate=3e-2)
    (result,) = group.train()
    layers = [m for m in group.runs[0].model.modules() if hasattr(m, "lora_E")]
    ranks = [int((layer.lora_E["default"] != 0).sum()) for layer in layers]
    assert sum(ranks) == 2 * len(ranks) == 4
    assert result["counts"]["trained"] == 2 * 3 * (8 + 8 + 1)
    assert result["counts"]["stored"] == 2 * 2 * (8 + 8 + 1)


def test_adalora_is_trained_with_its_regulariser_and_measured_without(plain):
    group = plain("adalora")
    (run,) = group.runs
    batch = {name: values[:8] for name, values in group.splits["train"].items()}
    ((measured, *_),) = group.evaluate("test")
    with torch.no_grad():
        assert measured == pytest.approx(float(run.core(**group.splits["test"]).loss), rel=1e-5)
        loss = float(run.core(**batch).loss)
        factors = [p for n, p in run.model.named_parameters() if "lora_A" in n or "lora_B" in n]
        grams = [f @ f.T if f.shape[0] < f.shape[1] else f.T @ f for f in factors]
        penalty = sum(float((g - torch.eye(len(g))).norm()) for g in grams) / len(grams)
    group._step({name: values[None] for name, values in batch.items()})
    weight = run.model.peft_config["default"].orth_reg_weight
    assert weight * penalty > 0.1
    assert run.losses == [pytest.approx(loss + weight * penalty, rel=1e-5)]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("lora", {"r": 13}, "choose 1 to 12"),
        ("loca", {"r": 9}, "choose 1 to 8"),
        ("dora", {"r": 0}, "choose 1 to 12"),
        ("c3a", {"r": 1}, "none is the budget of r = 1 in a 12x24 layer; choose another r"),
        ("lorra", {}, "unknown method 'lorra'"),
        ("adapters", {}, "not run"),
        ("lora", {"targets": ["key"]}, "not found"),
        ("linear-probing", {"head": None}, "this task has none"),
    ],
)
def test_refusals(name, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        tiny(name, **options)

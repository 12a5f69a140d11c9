"""What each method trains, by hand, and that it trains that and nothing else."""

import pytest
import torch

from experiments.finetuning.methods import Budget, adapt, find_method, methods
from experiments.finetuning.parameters import count
from experiments.finetuning.settings import task_names
from loca_theory.errors import InvalidArgumentError

P, Q, LAYERS = 10, 14, 2
RUN = [name for name, method in methods().items() if method.kind != "not-run"]
BUDGETED = [name for name in RUN if methods()[name].has_budget]
LOCA = [name for name in RUN if methods()[name].kind == "loca"]


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


def tiny(name, r=2, **options):
    torch.manual_seed(0)
    model = Tiny()
    budget = Budget(r, 200)  # long enough for pruning and regrowing of LoCA's within its fraction
    return adapt(
        model, find_method(name), budget, targets=["query"], head="head", seed=5, **options
    )


def trained(name, r):
    """Numbers a layer, by hand."""
    numbers, kind = (P + Q) * r, methods()[name].kind
    if kind == "loca":
        return numbers // 2 if name == "loca-charged" else numbers
    start = max(r + 1, round(1.5 * r))
    return {
        "lora": numbers,
        "dora": numbers + P,
        "adalora": (P + Q + 1) * start,
        "vera": min(numbers - P, 256) + P,
        "fourierft": numbers,
    }[kind]


@pytest.mark.parametrize("r", [1, 5])
@pytest.mark.parametrize("name", BUDGETED)
def test_trained_numbers(name, r):
    found = count(tiny(name, r), "head")
    assert found["trained"] == LAYERS * trained(name, r)
    assert found["head"] == 3 * (Q + 1)
    learns = name in LOCA and name != "loca-v1"
    assert found["stored"] == (2 if learns else 1) * found["trained"]


def test_trained_numbers_without_a_budget():
    total = sum(p.numel() for p in Tiny().parameters())
    assert count(tiny("full"), "head")["trained"] == total - 3 * (Q + 1)
    assert count(tiny("bitfit"), "head")["trained"] == LAYERS * (P + Q)
    assert count(tiny("linear-probing"), "head") == {"trained": 0, "head": 45, "stored": 0}


@pytest.mark.parametrize("name", BUDGETED)
def test_at_first_nothing_is_added(name):
    x = torch.randn(4, Q, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    plain = Tiny()(x)
    assert torch.allclose(tiny(name)(x), plain, atol=1e-6)


def test_a_coefficient_of_fourierft_weighs_as_much_as_one_of_loca():
    model = tiny("fourierft")
    layer = model.base_model.model.layers[0]["query"]
    with torch.no_grad():
        for i in range(20):
            layer.fourierft_spectrum["default"].zero_()
            layer.fourierft_spectrum["default"][i] = 1.0
            norm = float(layer.get_delta_weight("default").norm())
            # Locations that are their own conjugates are alone.
            assert norm == pytest.approx(1, abs=1e-5) or norm == pytest.approx(2**0.5, abs=1e-5)


@pytest.mark.parametrize("name", RUN)
def test_only_what_should_is_trained(begin, name):
    run = begin(name, rate=1e-2, steps=12, every=12)
    before = {n: p.detach().clone() for n, p in run.model.named_parameters()}
    asked = {n for n, p in run.model.named_parameters() if p.requires_grad}
    run.train()
    changed = {n for n, p in run.model.named_parameters() if not torch.equal(before[n], p)}
    kind, parts = methods()[name].kind, {n: n.split(".") for n in before}
    heads = {
        n for n, part in parts.items() if "classifier" in part and "original_module" not in part
    }
    assert heads <= changed
    marks = {"lora": "lora_", "dora": "lora_", "adalora": "lora_", "vera": "vera_lambda",
             "fourierft": "fourierft_", "loca": "loca_"}  # fmt: skip
    allowed = {
        n
        for n, part in parts.items()
        if kind == "full"
        or (kind == "biases" and part[-1] == "bias")
        or any(piece.startswith(marks.get(kind, "?")) for piece in part)
    }
    assert changed <= heads | allowed
    assert (changed - heads) or kind == "head"
    assert asked <= heads | allowed


# One of each kind; those of LoCA differ in their training, not in what they merge.
KINDS = list({methods()[name].kind: name for name in reversed(RUN)}.values())


@pytest.mark.parametrize("name", KINDS)
def test_merged_weights_predict_as_the_adapted_model(begin, name):
    run = begin(name, rate=3e-2)
    plain = begin("linear-probing").model
    run.train()
    images = run.splits["test"]["pixel_values"][:50]
    with torch.no_grad():
        run.model.eval()
        adapted = run.model(pixel_values=images).logits
        at_first = plain.eval()(pixel_values=images).logits
        plain.load_state_dict(run.merged())
        assert torch.allclose(plain(pixel_values=images).logits, adapted, atol=1e-4)
    assert not torch.allclose(at_first, adapted, atol=1e-2)


def test_adalora_ends_with_its_budget(begin):
    run = begin("adalora", r=2, rate=3e-2)
    run.train()
    left = [int((m.lora_E["default"] != 0).sum()) for m in run.model.modules()
            if hasattr(m, "lora_E")]  # fmt: skip
    assert sum(left) == 2 * len(left) == 8


def test_adalora_is_trained_with_its_regulariser(begin):
    run = begin("adalora")
    batch = {k: v[:8] for k, v in run.splits["train"].items()}
    with torch.no_grad():
        reference = float(run.model.base_model(**batch).loss)
    assert run._step(batch, 1) == pytest.approx(reference, rel=1e-5)


def test_nothing_is_regularised_where_it_is_measured(begin):
    run = begin("adalora")
    run.train()
    test = run.splits["test"]
    with torch.no_grad():
        logits = run.model(**test).logits
    loss = float(torch.nn.functional.cross_entropy(logits, test["labels"]))
    assert run._evaluate("test")[0] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("task", task_names())
def test_every_method_tries_equally_many_rates(task):
    for method in methods().values():
        if task in method.lowest:
            rates = method.rates(task)
            assert len(rates) == 4
            assert list(rates) == sorted(set(rates))
            assert set(rates) < set(method.rates(task, beyond=1))


@pytest.mark.parametrize(
    ("name", "r", "words"),
    [
        ("lora", 11, "choose 1 to 10"),
        ("loca", 6, "choose 1 to 5"),
        ("fourierft", 6, "choose 1 to 5"),
        ("dora", 0, "choose 1 to 10"),
    ],
)
def test_a_budget_that_cannot_be_expressed(name, r, words):
    with pytest.raises(InvalidArgumentError, match=words):
        tiny(name, r)


def test_other_refusals():
    with pytest.raises(InvalidArgumentError, match="unknown method 'lorra'"):
        find_method("lorra")
    with pytest.raises(InvalidArgumentError, match="bottleneck adapters are not run"):
        find_method("adapters")
    with pytest.raises(InvalidArgumentError, match="scaling are settings of LoCA"):
        tiny("lora", overrides={"scaling": 2.0})
    with pytest.raises(InvalidArgumentError, match="of shapes"):
        adapt(
            Tiny(), find_method("lora"), Budget(1, 9), targets=["query", "back"], head=None, seed=0
        )
    with pytest.raises(InvalidArgumentError, match="not found"):
        adapt(Tiny(), find_method("lora"), Budget(1, 9), targets=["key"], head=None, seed=0)

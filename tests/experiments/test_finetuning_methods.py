"""What each method trains, by hand, and that it trains that and nothing else."""

import pytest
import torch

from experiments.finetuning import training
from experiments.finetuning.methods import Budget, adapt, find_method, methods
from experiments.finetuning.parameters import count
from experiments.finetuning.tasks.pretraining import load_body
from loca_theory.errors import InvalidArgumentError

# PEFT builds the sparse increments of SHiRA from indices that it made itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    # Runs of a few steps do not move locations far.
    pytest.mark.filterwarnings("ignore:the search for locations is over"),
]
# C3A has blocks whose size divides both P and Q, and the budgets below.
P, Q, LAYERS = 12, 24, 2
RUN = [name for name, method in methods().items() if method.kind != "not-run"]
SMALL = [name for name in RUN if "small" in methods()[name].lowest]
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
        "waveft": numbers,
        "shira": numbers,
        "c3a": numbers,
    }[kind]


# With r = 8, VeRA has its largest rank and LoCA all components.
@pytest.mark.parametrize("r", [2, 8])
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
    assert count(tiny("linear-probing"), "head") == {"trained": 0, "head": 3 * (Q + 1), "stored": 0}


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


MARKS = {"lora": "lora_", "dora": "lora_", "adalora": "lora_", "vera": "vera_lambda",
         "fourierft": "fourierft_", "waveft": "waveft_", "shira": "shira_", "c3a": "c3a_",
         "loca": "loca_"}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_only_what_should_is_trained(begin, name):
    group = begin(name, seeds=(0, 1), rate=1e-2, steps=6, every=6, tunes=True)
    before = [{n: p.detach().clone() for n, p in run.model.named_parameters()}
              for run in group.runs]  # fmt: skip
    group.train()
    kind = methods()[name].kind
    for run, old in zip(group.runs, before, strict=True):
        parts = {n: n.split(".") for n in old}
        heads = {n for n, part in parts.items()
                 if "head" in part and "original_module" not in part}  # fmt: skip
        allowed = {
            n
            for n, part in parts.items()
            if kind == "full"
            or (kind == "biases" and part[-1] == "bias")
            or any(piece.startswith(MARKS.get(kind, "?")) for piece in part)
        }
        found = dict(run.model.named_parameters())
        changed = {n for n, p in found.items() if not torch.equal(old[n], p)}
        assert heads <= changed <= heads | allowed
        assert (changed - heads) or kind == "head"
        assert {n for n, p in found.items() if p.requires_grad} <= heads | allowed


class Encoder(torch.nn.Module):
    """A plain model, whose runs have a forward pass each, as those of the task ``text``."""

    def __init__(self):
        super().__init__()
        self.query, self.value = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, inputs, labels):
        x = inputs + torch.tanh(self.value(torch.tanh(self.query(inputs))))
        return self.answer(self.head(x), labels)

    @staticmethod
    def answer(logits, labels):
        from transformers.modeling_outputs import SequenceClassifierOutput

        loss = torch.nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


@pytest.fixture
def plain(begin, monkeypatch):
    """A group of runs of a plain model on made-up examples."""

    body = Encoder().state_dict()

    def start(method, **options):
        monkeypatch.setattr(training, "base_model", lambda *_: load_body(Encoder(), body))
        group = begin(method, **options)
        source = torch.Generator().manual_seed(0)
        inputs = torch.randn(330, 8, generator=source)
        every = {"inputs": inputs, "labels": inputs[:, :3].argmax(1)}
        cut = {"train": slice(0, 100), "validation": slice(100, 200), "test": slice(200, 330)}
        group.splits = {split: {n: t[s] for n, t in every.items()} for split, s in cut.items()}
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
    ranks = [int((m.lora_E["default"] != 0).sum()) for m in group.runs[0].model.modules()
             if hasattr(m, "lora_E")]  # fmt: skip
    assert sum(ranks) == 2 * len(ranks) == 4
    assert result["counts"]["trained"] == 2 * 3 * (8 + 8 + 1)
    assert result["counts"]["stored"] == 2 * 2 * (8 + 8 + 1)


def test_adalora_is_trained_with_its_regulariser(plain):
    group = plain("adalora")
    (run,) = group.runs
    batch = {name: values[:8] for name, values in group.splits["train"].items()}
    with torch.no_grad():
        loss = float(run.core(**batch).loss)
        factors = [p for n, p in run.model.named_parameters() if "lora_A" in n or "lora_B" in n]
        grams = [f @ f.T if f.shape[0] < f.shape[1] else f.T @ f for f in factors]
        penalty = sum(float((g - torch.eye(len(g))).norm()) for g in grams) / len(grams)
    group._step({name: values[None] for name, values in batch.items()})
    weight = run.model.peft_config["default"].orth_reg_weight
    assert weight * penalty > 0.1
    assert run.losses == [pytest.approx(loss + weight * penalty, rel=1e-5)]


def test_nothing_is_regularised_where_it_is_measured(plain):
    group = plain("adalora")
    ((loss, _),) = group._evaluate("test")
    with torch.no_grad():
        expected = float(group.runs[0].core(**group.splits["test"]).loss)
    assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("tasks", ["small", "text"])
def test_every_method_tries_equally_many_rates(tasks):
    for method in methods().values():
        if tasks in method.lowest:
            rates = method.rates(tasks)
            assert len(rates) == 4
            assert list(rates) == sorted(set(rates))
            assert set(rates) < set(method.rates(tasks, beyond=1))


@pytest.mark.parametrize(
    ("name", "r", "words"),
    [
        ("lora", 13, "choose 1 to 12"),
        ("loca", 9, "choose 1 to 8"),
        ("fourierft", 9, "choose 1 to 8"),
        ("dora", 0, "choose 1 to 12"),
        ("c3a", 1, "none is the budget of r = 1 in a 12x24 layer; choose another r"),
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
    with pytest.raises(InvalidArgumentError, match="AdaLoRA cannot be run on the tasks of the gro"):
        find_method("adalora").rates("small")

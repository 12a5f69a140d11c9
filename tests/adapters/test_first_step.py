"""How far the first steps of training move a weight."""

import math
import re
from typing import ClassVar

import peft
import pytest
import torch
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from peft.tuners.lora import BdLoraConfig
from torch import nn

from loca_theory import InvalidArgumentError
from loca_theory.adapters import LoCAConfig, equivalent_lr, first_step, first_steps
from loca_theory.expressivity import Budget
from loca_theory.expressivity.laws.first_step import of_low_rank
from loca_theory.expressivity.methods.registry import METHODS, find_method

LR = 1e-4
LORA = peft.LoraConfig(r=4, lora_alpha=8)
# A budget of which rank, and what PEFT calls the adapter that spends it, by its trained numbers.
ADAPTERS = {
    "LoRA": (8, lambda numbers, p, q: peft.LoraConfig(r=8, lora_alpha=16)),
    "LoHa": (8, lambda numbers, p, q: peft.LoHaConfig(r=4, alpha=8)),
    "FourierFT": (2, lambda numbers, p, q: peft.FourierFTConfig(n_frequency=numbers)),
    "WaveFT": (2, lambda numbers, p, q: peft.WaveFTConfig(n_frequency=numbers)),
    "WaveFT-PEFT": (2, lambda numbers, p, q: peft.WaveFTConfig(n_frequency=numbers)),
    "VeRA": (1, lambda numbers, p, q: peft.VeraConfig(r=numbers - p)),
    "C3A": (4, lambda numbers, p, q: peft.C3AConfig(block_size=p * q // numbers)),
    "SHiRA": (4, lambda numbers, p, q: peft.ShiraConfig(r=4)),
    "random DCT": (2, lambda numbers, p, q: LoCAConfig(n_frequency=numbers)),
    "LoCA": (2, lambda numbers, p, q: LoCAConfig(n_frequency=numbers)),
    "MiCA": (
        4,
        lambda numbers, p, q: peft.LoraConfig(
            r=numbers // q, lora_alpha=2 * numbers // q, init_lora_weights="mica"
        ),
    ),
    "Super-Tuning": (
        4,
        lambda numbers, p, q: peft.SupertuningConfig(sparsity=1 - (numbers + 0.5) / (p * q)),
    ),
    "BD-LoRA": (
        8,
        lambda numbers, p, q: peft.LoraConfig(
            r=2 * numbers // (p + 2 * q),
            lora_alpha=4 * numbers // (p + 2 * q),
            use_bdlora=BdLoraConfig(target_modules_bd_b=[""], nblocks=2),
        ),
    ),
    "GraLoRA": (8, lambda numbers, p, q: peft.GraloraConfig(r=8, alpha=16)),
}


def test_every_method_with_a_first_step_is_tested():
    budget = Budget(96, 128, 8)
    supported = {method.name for method in METHODS.values() if method.first_step(budget)}
    # LoRA-FA is an optimiser of PEFT: its first step is that of LoRA, whose A has no gradient.
    assert supported == {*ADAPTERS, "MiSS", "LoRA-FA"}
    rank = METHODS["LoRA-FA"].rank(budget)
    assert METHODS["LoRA-FA"].first_step(budget) == of_low_rank(96, 128, rank, 2.0)


@pytest.mark.parametrize(
    "shape", [(96, 128), pytest.param((160, 64), marks=pytest.mark.deep)], ids=str
)
@pytest.mark.parametrize("name", ADAPTERS)
def test_a_method_moves_the_weight_as_its_layer_in_peft(name, shape):
    """Within three standard errors, and 3e-5 for PEFT's own single precision."""
    rank, config = ADAPTERS[name]
    method, budget = find_method(name), Budget(*shape, rank)
    numbers = method.parameters(budget)
    measured = first_step(config(numbers, *shape), shape, lr=LR, draws=40)
    assert measured.numbers == numbers
    assert_agrees(measured, method.first_step(budget))


@pytest.mark.parametrize(("r", "period"), [(8, 8), (16, 16)])
def test_miss_moves_every_entry_by_the_rate(r, period):
    """PEFT's period divides the inputs; that of the budget need not."""
    measured = first_step(peft.MissConfig(r=r), (96, 128), lr=LR)
    assert measured.numbers == 96 * period
    step = METHODS["MiSS"].first_step(Budget(96, 128, 4))
    assert measured.frobenius.value == pytest.approx(LR * step.frobenius)
    assert step.frobenius == pytest.approx(math.sqrt(96 * 128))


def test_rslora_scales_by_the_root_of_its_rank():
    lora, (p, q) = peft.LoraConfig(r=6, use_rslora=True), (96, 128)
    measured = first_step(lora, (p, q), lr=LR, draws=40)
    assert_agrees(measured, of_low_rank(p, q, 6, 8 / math.sqrt(6)))


def assert_agrees(measured, step):
    for name in ("frobenius", "decrease"):
        value, error = getattr(measured, name)
        expected = LR * getattr(step, name)
        assert abs(value - expected) <= 3 * error + 3e-5 * expected, name


def test_a_step_is_that_of_adam_by_hand():
    """LoCA: every coefficient moves by the learning rate against the sign of its gradient."""
    p, q, count = 12, 20, 30
    step = first_step(LoCAConfig(n_frequency=count), (p, q), lr=LR)
    norm = LR * math.sqrt(count)
    assert step.numbers == count
    assert step.frobenius.value == pytest.approx(norm)
    assert step.output_rms.value == pytest.approx(norm / math.sqrt(p))
    # Largest over smallest singular value of a weight whose entries have the variance 1/(3q).
    assert step.relative_frobenius.value == pytest.approx(norm / math.sqrt(p / 3), rel=0.1)
    assert norm / math.sqrt(p) <= step.spectral.value <= norm


def test_later_steps_of_a_product_move_both_factors():
    """LoRA's A has no gradient before B has moved: k steps of B alone would move k times as far."""
    after_1, after_10 = (first_step(LORA, (40, 48), lr=1e-3, steps=steps) for steps in (1, 10))
    assert after_10.frobenius.value > 10.05 * after_1.frobenius.value
    linear = LoCAConfig(n_frequency=100)
    after_1, after_10 = (first_step(linear, (40, 48), lr=1e-3, steps=steps) for steps in (1, 10))
    assert after_10.frobenius.value == pytest.approx(10 * after_1.frobenius.value)


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
def test_at_equivalent_rates_both_move_the_weight_as_far(norm):
    for config in (peft.FourierFTConfig(n_frequency=200), peft.OFTConfig(oft_block_size=8), LORA):
        rate = equivalent_lr(config, LORA, (48, 64), lr=LR, norm=norm)
        step = first_step(config, (48, 64), lr=rate)
        lora_step = first_step(LORA, (48, 64), lr=LR)
        assert getattr(step, norm).value == pytest.approx(getattr(lora_step, norm).value, rel=2e-3)
    assert rate == pytest.approx(LR)


class Classifier(nn.Module):
    config: ClassVar = {"model_type": "custom"}

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.second(self.first(x).relu())


def test_the_layers_of_a_model_move_by_their_own_gradients():
    torch.manual_seed(0)
    model, x = Classifier(), torch.randn(50, 24, dtype=torch.float64)
    # Cross-entropy would do nothing to the mean of the logits: some gradients would be rounding.
    target = torch.randn(50, 8, dtype=torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def loss(adapted):
        return nn.functional.mse_loss(adapted(x), target)

    config = LoCAConfig(n_frequency=40, target_modules=["first", "second"])
    steps = first_steps(config, model, loss, lr=LR)
    assert steps.keys() == {"first", "second"}
    for name, step in steps.items():
        weight = getattr(model, name).weight
        assert step.numbers == 40
        assert step.frobenius.value == pytest.approx(LR * math.sqrt(40))
        relative = step.frobenius.value / float(weight.detach().norm())
        assert step.relative_frobenius.value == pytest.approx(relative)
    # For a very small step, the decrease of the loss is that of first order.
    small = sum(step.decrease.value for step in first_steps(config, model, loss, lr=1e-7).values())
    assert 0 < small < 1e-4
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert first_steps(config, model, lr=LR).keys() == steps.keys()


# Which types of PEFT 0.21 have no step of a linear layer's weight, and why.
IMPOSSIBLE = {
    "does not adapt": {"ADAPTION_PROMPT", "SHADOW"},
    "learns a prompt": {
        "CARTRIDGE",
        "CPT",
        "MULTITASK_PROMPT_TUNING",
        "P_TUNING",
        "PREFIX_TUNING",
        "PROMPT_TUNING",
    },
    "adapts no layer": {"XLORA"},
    "input of a linear layer alone": {"POLY", "TRAINABLE_TOKENS"},
    "changes no weight": {"BEFT"},
}


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", list(PEFT_TYPE_TO_CONFIG_MAPPING), ids=lambda kind: kind.value)
def test_every_tuner_of_peft_is_measured_or_refused(kind):
    options = {
        "ADALORA": {"total_step": 100},
        "C3A": {"block_size": 32},
        "CPT": {"task_type": "CAUSAL_LM"},
        "VBLORA": {"vector_length": 64},
    }
    config = PEFT_TYPE_TO_CONFIG_MAPPING[kind](**options.get(kind.value, {}))
    reasons = [reason for reason, kinds in IMPOSSIBLE.items() if kind.value in kinds]
    if reasons:
        with pytest.raises(InvalidArgumentError, match=re.escape(reasons[0])):
            first_step(config, (128, 192), draws=2)
        return
    step = first_step(config, (128, 192), draws=2)
    assert step.frobenius.value >= step.spectral.value > 0
    assert step.numbers > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lora", (8, 8)), "must be a configuration of PEFT"),
        ((LORA, (8,)), "shape"),
        ((peft.C3AConfig(block_size=256), (96, 128)), "PEFT does not adapt .* with C3AConfig"),
        ((peft.PeftConfig(), (8, 8)), "must be a configuration of PEFT"),
        ((peft.PromptTuningConfig(), (8, 8)), "PromptTuningConfig learns a prompt"),
    ],
    ids=["a name", "one side", "blocks that do not fit", "no tuner", "a prompt"],
)
def test_what_has_no_step_is_refused_in_one_line(arguments, message):
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        first_step(*arguments)
    assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(InvalidArgumentError, match=message):
        equivalent_lr(arguments[0], LORA, arguments[1])


def packed():
    """A model whose first weight is integers with a scale, as of bitsandbytes or HQQ."""
    model = Classifier()
    model.first.weight = nn.Parameter(model.first.weight.data.to(torch.uint8), requires_grad=False)
    return model


@pytest.mark.parametrize(
    ("make_model", "message"),
    [
        (packed, "first: its weight is quantised"),
        (lambda: torch.ao.quantization.quantize_dynamic(Classifier()), "first: .* is quantised"),
        (lambda: Classifier().to("meta"), "first: .* meta device"),
        (lambda: "hub:org/name", "must be a torch module, not str"),
    ],
    ids=["integers", "torch's own", "no values", "a name"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
def test_a_model_that_cannot_be_trained_in_float64_is_refused_in_one_line(make_model, message):
    config = LoCAConfig(n_frequency=4, target_modules=["first"])
    with pytest.raises(InvalidArgumentError, match=message) as refused:
        first_steps(config, make_model())
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.deep
def test_a_base_of_bitsandbytes_is_refused():
    quantised = pytest.importorskip("bitsandbytes").nn
    layers = (quantised.Linear8bitLt(24, 32), quantised.Linear4bit(24, 32).to("cpu"))
    for layer in layers:
        model = Classifier()
        model.first = layer
        with pytest.raises(InvalidArgumentError, match="first: its weight is quantised"):
            first_steps(LoCAConfig(n_frequency=4, target_modules=["first"]), model)


def test_numbers_out_of_range_are_refused():
    for options in ({"lr": 0.0}, {"lr": math.nan}, {"steps": 0}, {"draws": 1}):
        with pytest.raises(InvalidArgumentError, match="must be"):
            first_step(LORA, (8, 8), **options)
    with pytest.raises(InvalidArgumentError, match="frobenius or spectral"):
        equivalent_lr(LORA, LORA, (8, 8), norm="nuclear")
    with pytest.raises(InvalidArgumentError, match="adapt"):
        first_steps(LoCAConfig(n_frequency=4, target_modules=["third"]), Classifier())
    config = LoCAConfig(n_frequency=4, target_modules=["first"])
    with pytest.raises(InvalidArgumentError, match="loss must return a tensor of one number"):
        first_steps(config, Classifier(), lambda model: 1.0)

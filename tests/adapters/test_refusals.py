"""The layer, its searches and its configuration refuse in one line that says what is wrong."""

import math
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from loca_theory.adapters import AlternatingSchedule, LoCAConfig, LoCALinear, follow
from loca_theory.errors import InvalidArgumentError

from .searching import SHORT, adamw, normal, small, trained
from .test_other_layers import Net
from .test_parameters import BOTH, Mixture
from .test_parameters import adapted as with_parameters
from .test_tuner import LAYER, adapted, batch
from .tiny_models import llama, of_peft

pytestmark = of_peft


def schedule(**options):
    return AlternatingSchedule(**options)


def layer(**options):
    return LoCALinear(nn.Linear(9, 6), **{"n_components": 3, "name": "q_proj"} | options)


def config(**options):
    return LoCAConfig(**options)


def around(base, **attributes):
    """LoCA in PEFT around one layer of a model with these attributes."""
    model = Net(base)
    vars(model).update(attributes)
    return get_peft_model(model, LoCAConfig(n_frequency=9, target_modules=["layer"]))


JOINT = AlternatingSchedule(2, 3, 10, joint=True)
NEEDS = "the curvature needs the input of each matrix, .*; use location_search='central' with"
SETTINGS = [
    (schedule, {"coefficient_steps": 0}, "steps must be an integer of at least 1, not 0"),
    (schedule, {"coefficient_steps": 2.5}, "steps must be an integer of at least 1, not 2.5"),
    (schedule, {"location_steps": -2}, "location_steps must be an integer of at least 1, not -2"),
    (schedule, {"recorded_steps": 0}, "recorded_steps must be an integer of at least 1, not 0"),
    (schedule, {"alternating_steps": -1}, "alternating_steps must be an .* at least 0, not -1"),
    (schedule, {"alternating_steps": math.nan}, "alternating_steps .* at least 0, not nan"),
    # A search that can move nothing.
    (small, {"location_search": "odd"}, "location_search must be one of .*, not 'odd'"),
    (small, {"init_locations": "odd"}, "init_locations must be one of .*, not 'odd'"),
    (small, {"location_lr": 0.0}, "location_lr must be positive and finite, not 0.0"),
    (small, {"location_lr": math.inf}, "location_lr must be positive and finite, not inf"),
    (
        small,
        {"location_search": "reselect", "schedule": JOINT},
        "joint=True learns locations along a gradient, and 'reselect' has none",
    ),
    (
        small,
        {"location_search": "swap", "schedule": AlternatingSchedule(10, 20, 29)},
        "alternating_steps=29 ends before .* takes 30 steps",
    ),
    (
        small,
        {"schedule": AlternatingSchedule(10, 20, 10)},
        "alternating_steps=10 ends before all layers have learned a location, which takes 11 steps",
    ),
    (layer, {"n_components": 0}, "q_proj: the number of components .* integer .*1, not 0"),
    (layer, {"n_components": True}, "q_proj: the number of components .*not True"),
    (layer, {"n_components": 2.0}, "q_proj: the number of components .*not 2.0"),
    (layer, {"n_components": 55}, "q_proj: 55 components do not fit into 6×9 = 54 locations"),
    *(
        (
            layer,
            {"scaling": value},
            f"q_proj: the scaling must be positive and finite, not {value!r}",
        )
        for value in (0, -1.0, math.nan, math.inf, "1")
    ),
    (layer, {"implementation": "odd"}, "q_proj: implementation must be one of auto, .*, not 'odd'"),
    (layer, {"seed": -1}, "q_proj: the seed must be an integer of at least 0, not -1"),
    (layer, {"seed": (5, 0.5)}, "q_proj: the seed .*not 0.5"),
    (config, {"n_frequency": 2.5}, r"n_frequency must be an integer of at least 1, not 2\.5"),
    (config, {"random_loc_seed": -1}, "random_loc_seed must be an integer of at least 0, not -1"),
    (config, {"init_weights": "odd"}, "init_weights must be one of True, False, not 'odd'"),
    (config, {"joint": "x"}, "joint must be one of True, False, not 'x'"),
    (config, {"n_frequency_pattern": {"q": -1}}, r"pattern\['q'\] must be an integer .*, not -1"),
    (config, {"n_frequency_pattern": {"q(": 3}}, "n_frequency_pattern must be a regular expressi"),
    (config, {"n_frequency_pattern": ["q"]}, r"pattern must be a dict, not \['q'\]"),
    (config, {"target_parameters": [3]}, r"target_parameters must be a list of names, not \[3\]"),
    (config, {"target_parameters": "up"}, "target_parameters must be a list of names, not 'up'"),
    (config, {"scaling": -1.0}, r"scaling must be positive and finite, not -1\.0"),
    (config, {"implementation": "odd"}, "implementation must be one of .*, not 'odd'"),
    (config, {"alternating_steps": 6}, "alternating_steps=6 ends before all layers"),
    (config, {"bias": "some"}, "bias must be one of .*, not 'some'"),
    (config, {"layers_pattern": "layers"}, "layers_pattern needs layers_to_transform"),
    *(
        (
            config,
            {"target_modules": ".*q", name: value},
            f"{name} cannot be used when target_modules",
        )
        for name, value in (("layers_to_transform", [0]), ("layers_pattern", "layers"))
    ),
    *(
        (config, {"target_parameters": BOTH, **search}, NEEDS)
        for search in ({"location_search": "swap"}, {"init_locations": "gradient"})
    ),
]


@pytest.mark.parametrize(("make", "options", "message"), SETTINGS)
def test_a_bad_setting_is_refused_at_once(make, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": AlternatingSchedule(10, 20, 11)},
        {"schedule": AlternatingSchedule(10, 20, 30), "location_search": "swap"},
        {"schedule": AlternatingSchedule(10, 20, 5, joint=True)},
    ],
    ids=str,
)
def test_a_search_that_can_move_once_is_not(options):
    small(**options)


def into_another_width(folder):
    adapted().save_pretrained(folder)
    PeftModel.from_pretrained(llama(hidden_size=32), folder)


def parametrised():
    model = Mixture()
    nn.utils.parametrizations.weight_norm(model.head)
    return get_peft_model(model, LoCAConfig(n_frequency=6, target_parameters=["head.weight"]))


def planned():
    """A layer with a plan of transformers."""
    base = nn.Linear(4, 6)
    base._hf_tp_plan = "colwise"
    return base


PLANNED = {  # a model with a plan of transformers
    "_device_mesh": SimpleNamespace(mesh_dim_names=None, ndim=1),
    "config": SimpleNamespace(
        model_type="none", tie_word_embeddings=False, distributed_config=SimpleNamespace(tp_size=2)
    ),
    "tp_plan": {"layer": "colwise"},
}
SPLIT = "layer: its weight is split over processes for tensor parallelism"


def attention(**targets):
    return get_peft_model(Net(nn.MultiheadAttention(8, 2)), LoCAConfig(n_frequency=9, **targets))


UNUSED = r"layer\.out_proj.*: .* an adapter would do nothing"
MODELS = {
    "another input": (
        lambda _: layer().spectrum(normal(3, 10)),
        r"must be 9 wide, not of shape \(3, 10\)",
    ),
    "too many components": (
        lambda _: adapted(n_frequency=300),
        rf"{LAYER}: 300 components .* 16×16 = 256 locations; reduce .*n_frequency_pattern",
    ),
    "a norm": (
        lambda _: adapted(target_modules=["input_layernorm"]),
        r"model\.layers\.0\.input_layernorm: LoCA adapts linear layers .*, not LlamaRMSNorm",
    ),
    "mixed batches": (
        lambda _: adapted()(**batch(), adapter_names=["default", "__base__"]),
        "does not support mixed batches",
    ),
    "another width": (into_another_width, rf"{LAYER}.*16×16 layer, this one is 32×32; load it"),
    "groups": (
        lambda _: around(nn.Conv2d(4, 6, 3, groups=2)),
        r"layer: .* grouped convolution \(groups=2\)",
    ),
    "max_norm": (
        lambda _: around(nn.Embedding(11, 6, max_norm=1.0)),
        "layer: .* nn.Embedding with max_nor",
    ),
    "one-dimensional": (
        lambda _: around(nn.Conv1d(3, 5, 3)),
        "layer: LoCA adapts linear layers .*, not Conv1d",
    ),
    "too small a kernel": (
        lambda _: around(nn.Conv2d(1, 2, 2)),
        "layer: 9 components do not fit into 2×4 = 8 locati",
    ),
    # Its attention never calls it.
    "an output of attention": (lambda _: attention(target_modules="all-linear"), UNUSED),
    "its weight": (
        lambda _: attention(target_modules=[], target_parameters=["out_proj.weight"]),
        UNUSED,
    ),
    "a vector": (
        lambda _: with_parameters(["experts.bias"]),
        r"experts.bias: LoCA adapts matrices .* of shape \(5,\)",
    ),
    "whole numbers": (
        lambda _: with_parameters(["experts.codes"]),
        "experts.codes: .* not torch.uint8 of shape",
    ),
    "parametrised": (lambda _: parametrised(), "torch.nn.utils.parametrize already replaces"),
    "a plan of the layer": (lambda _: around(planned()), f"{SPLIT}.*by the plan 'colwise'"),
    "a plan of the model": (
        lambda _: around(nn.Linear(4, 6), **PLANNED),
        f"{SPLIT}.*by the plan 'colwise'",
    ),
}


@pytest.mark.parametrize(("call", "message"), MODELS.values(), ids=MODELS)
def test_what_does_not_fit_the_model_is_refused(call, message, tmp_path):
    with pytest.raises((InvalidArgumentError, RuntimeError), match=message):
        call(tmp_path)


@pytest.mark.parametrize("style", [ColwiseParallel, RowwiseParallel])
def test_a_weight_that_torch_has_split_is_refused(style, group):
    mesh, named = (init_device_mesh("cpu", (1,), mesh_dim_names=n) for n in (None, ("tp",)))
    with pytest.raises(InvalidArgumentError, match=f"{SPLIT}.*over the mesh"):
        around(parallelize_module(nn.Linear(4, 6), named, style()))
    model = around(nn.Linear(4, 6))
    parallelize_module(model.base_model.model.layer, mesh, {"base_layer": style()})
    with pytest.raises(InvalidArgumentError, match=f"{SPLIT}.*as a DTensor"):
        model(torch.randn(2, 4))


class ScheduleFree(torch.optim.SGD):
    def train(self):
        """Of an optimiser that keeps an average of the parameters."""


class OfTheirs:
    param_groups = ()


def zero_1(model):
    model[0].spectrum.coefficients._hp_mapping = None
    return adamw(model)


OPTIMISERS = {
    "another's": (
        lambda m: torch.optim.SGD(m[0].base.parameters()),
        "does not hold the coefficients of LoCA; build it from the model's parameters after",
    ),
    "LBFGS": (lambda m: torch.optim.LBFGS(trained(m)), "LBFGS keeps former param"),
    "schedule-free": (lambda m: ScheduleFree(trained(m)), "ScheduleFree keeps form"),
    "ZeRO": (zero_1, "DeepSpeed's ZeRO does not step .*; set alternating_steps=0"),
    "not torch's": (lambda _: OfTheirs(), "OfTheirs does not step the parameters"),
}


@pytest.mark.parametrize(("make", "message"), OPTIMISERS.values(), ids=OPTIMISERS)
def test_what_cannot_be_followed_is_one_clear_line(make, message):
    model = small(schedule=SHORT)
    optimizer = make(model)
    with pytest.raises(InvalidArgumentError, match=message):
        follow(model, optimizer)
    with pytest.raises(InvalidArgumentError, match="the model has no LoCA layer"):
        follow(nn.Linear(2, 2), optimizer)

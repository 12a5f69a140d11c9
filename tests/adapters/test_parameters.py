"""Single parameters with LoCA in PEFT (``target_parameters``), against a changed copy."""

import copy

import pytest
import torch
from peft import PeftModel, get_peft_model
from torch import nn

from loca_theory.adapters import LoCAConfig, follow
from loca_theory.errors import InvalidArgumentError
from loca_theory.transforms import dct2

from .searching import close, dense, normal
from .tiny_models import of_peft

pytestmark = of_peft
UP, DOWN = (3, 5, 4), (3, 4, 5)


class Experts(nn.Module):
    """Three experts without a router, and parameters that are not matrices."""

    def __init__(self):
        super().__init__()
        self.up, self.down = (nn.Parameter(normal(*shape)) for shape in (UP, DOWN))
        self.bias = nn.Parameter(normal(5))
        self.codes = nn.Parameter(torch.zeros(4, 4, dtype=torch.uint8), requires_grad=False)

    def forward(self, x, scale=1.0):
        h = torch.tanh(torch.einsum("td,ehd->teh", x, self.up) + self.bias)
        return scale * torch.einsum("teh,edh->td", h, self.down)


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts, self.head = Experts(), nn.Linear(4, 2).double()

    def forward(self, x):
        return self.head(self.experts(x, scale=0.5))


BOTH = ["experts.up", "experts.down"]


def config(parameters=BOTH, **options):
    settings = {"n_frequency": 6, "init_weights": False, "location_lr": 0.2}
    return LoCAConfig(target_parameters=parameters, **settings | options)


def adapted(parameters=BOTH, **options):
    torch.manual_seed(0)
    return get_peft_model(Mixture(), config(parameters, **options), autocast_adapter_dtype=False)


def wrappers(model):
    """By the name of the parameter."""
    return {
        module.parameter_name: module
        for module in model.modules()
        if type(module).__name__ == "ParamWrapper"
    }


def changed(model, adapters=("default",)):
    """A plain model with dense ΔW of what the spectra hold, as a view of the parameter."""
    torch.manual_seed(0)
    plain = Mixture()
    with torch.no_grad():
        for wrapper in wrappers(model).values():
            for adapter in adapters:
                parameter = plain.get_parameter(wrapper.name)
                parameter += dense(wrapper.loca_spectrum[adapter]).view(parameter.shape)
    return plain


def inputs(seed=3):
    return normal(7, 4, seed=seed)


SIZES = {"up": (15, 4), "down": (12, 5), "weight": (2, 4)}


@pytest.mark.parametrize("parameters", [BOTH, BOTH[:1], ["head.weight"]], ids=str)
def test_the_module_runs_with_its_changed_parameters(parameters):
    model = adapted(parameters)
    assert {name: tuple(w._features()) for name, w in wrappers(model).items()} == {
        name: SIZES[name] for name in (full.split(".")[1] for full in parameters)
    }
    x, plain = inputs(), changed(model)
    y, expected = model(x), plain(x)
    close(y, expected)
    for output in (y, expected):
        output.square().sum().backward()
    for wrapper in wrappers(model).values():
        spectrum = wrapper.spectrum("default")
        z = dct2(plain.get_parameter(wrapper.name).grad.reshape(tuple(spectrum.shape.tolist())))
        close(spectrum.coefficients.grad, z[tuple(spectrum.indices.T)])
    with model.disable_adapter():
        close(model(x), changed(model, ())(x))


def test_a_start_by_the_gradient_alone_has_its_largest_entries():
    search = {"location_search": "swap-raw", "init_locations": "gradient", "recorded_steps": 1}
    model = adapted(init_weights=True, alternating_steps=None, **search)
    optimizer, plain = torch.optim.SGD(model.parameters(), lr=0.1), changed(model)
    follow(model, optimizer)
    for run in (model, plain):
        run(inputs()).square().sum().backward()
    optimizer.step()
    z = dct2(plain.experts.up.grad.reshape(15, 4)).abs().flatten()
    indices = wrappers(model)["up"].spectrum("default").indices
    assert set((indices[:, 0] * 4 + indices[:, 1]).tolist()) == set(z.topk(6).indices.tolist())


def test_merging_and_unmerging():
    model, x = adapted(), inputs()
    y = model(x)
    model.merge_adapter()
    close(model(x), y)
    close(wrappers(model)["up"].get_base_weight(), changed(model).experts.up)
    model.unmerge_adapter()
    close(wrappers(model)["up"].get_base_weight(), normal(*UP))
    merged = copy.deepcopy(model).merge_and_unload(safe_merge=True)
    close(merged(x), y)
    for plain in (merged, model.unload()):
        assert type(plain.experts) is Experts


def test_several_adapters_share_their_wrappers_and_go_through_files(tmp_path):
    model, x = adapted(), inputs()
    model.add_adapter("other", config(random_loc_seed=5))
    assert len(wrappers(model)) == 2
    model.base_model.set_adapter(["default", "other"])
    close(model(x), changed(model, ("default", "other"))(x))
    model.save_pretrained(tmp_path)
    torch.manual_seed(0)
    options = {"autocast_adapter_dtype": False}
    loaded = PeftModel.from_pretrained(Mixture(), tmp_path / "other", "other", **options)
    loaded.load_adapter(tmp_path, "default", **options)
    loaded.base_model.set_adapter(["default", "other"])
    close(loaded(x), model(x), 1e-6)  # files hold float32
    loaded.delete_adapter("other")
    close(loaded(x), changed(model)(x), 1e-6)
    with pytest.raises(InvalidArgumentError, match="must target the same set of parameters"):
        model.add_adapter("third", config(BOTH[:1]))


@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_the_compiled_module_is_the_eager_one():
    torch._dynamo.reset()
    model, x, results = adapted(), inputs(), []
    for run in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        run(x).square().sum().backward()
        results.append([w.spectrum("default").coefficients.grad for w in wrappers(model).values()])
    for ours, theirs in zip(*results, strict=True):
        close(ours, theirs)

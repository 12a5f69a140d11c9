"""The checks at tiny sizes on the CPU, with torch's CUDA calls played or failing."""

import importlib
import re
import sys
import textwrap
import warnings
from types import ModuleType, SimpleNamespace

import pytest
import torch

from benchmarks._measure import Rival, environment, interleaved
from benchmarks._rivals import adapted, sharing_weights
from benchmarks.cuda import analysis, device, layers, models, simulation, suite, transforms
from benchmarks.cuda.comparison import _too_many, compare
from benchmarks.cuda.session import PoisonedError, _slowest, is_out_of_memory
from loca_theory.adapters import CosineSpectrum

OOM = """CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.19 GiB of
which 3.00 GiB is free. Including non-PyTorch memory"""
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be"


def raising(error):
    def call(*_, **__):
        raise error

    return call


# --- rows ---


def test_an_exception_is_the_result_of_its_row(session):
    assert not session.attempt({"key": "a"}, raising(ValueError("wrong\nand more")))
    assert session.attempt({"key": "b"}, lambda row: row.update(ms=1.0))
    rows = session.rows()
    assert rows["a"]["error"] == "ValueError: wrong"
    assert rows["b"]["ms"] == 1.0
    assert rows["a"]["final"]
    assert rows["b"]["final"]


def test_out_of_memory_says_what_was_needed_and_leaves_the_device(session, card):
    session.attempt({"key": "a"}, raising(torch.OutOfMemoryError(OOM)))
    assert session.rows()["a"]["error"] == (
        "out of memory: it needed 20.00 GiB more on a card of 79.19 GiB"
    )


@pytest.mark.parametrize(
    "text", ["cuFFT error: CUFFT_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED when calling"]
)
def test_other_libraries_run_out_of_memory_in_their_own_words(text):
    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(RuntimeError("CUFFT_INVALID_SIZE"))


def test_a_lost_device_ends_the_process_after_its_row(session, card):
    card.setattr(torch.cuda, "synchronize", raising(RuntimeError(ILLEGAL)))
    with pytest.raises(PoisonedError, match="illegal memory access"):
        session.attempt({"key": "a"}, lambda _: None)
    assert session.rows()["a"]["error"].endswith("an illegal memory access was encountered")


def test_what_is_done_is_not_done_again_and_what_takes_too_long_is_left_out(session):
    session.done.add("a")
    assert not session.attempt({"key": "a"}, raising(AssertionError()))
    assert not session.attempt({"key": "b"}, raising(AssertionError()), seconds=1e6)
    assert list(session.rows()) == ["b"]
    assert session.rows()["b"]["left_out"].startswith("no time: 1000000 s")


def test_kernels_are_told_without_the_operators_that_launch_them():
    def event(name, kind, total):
        kind = SimpleNamespace(name=kind)
        return SimpleNamespace(key=name, device_type=kind, count=6, self_device_time_total=total)

    events = [
        event("aten::mm", "CPU", 9.0),
        event("short", "CUDA", 3.0),
        event("gemm", "CUDA", 9.0),
    ]
    assert _slowest(events, "CUDA") == [
        {"name": "gemm", "calls_a_step": 2.0, "us_a_step": 3.0},
        {"name": "short", "calls_a_step": 2.0, "us_a_step": 1.0},
    ]


def test_without_psutil_click_and_rich_times_are_measured(monkeypatch):
    for name in ("psutil", "click", "rich", "rich.table", "rich.console"):
        monkeypatch.setitem(sys.modules, name, None)
    found = interleaved({"a": Rival(lambda: None)}, rounds=2, block_seconds=1e-6)
    assert found["a"].median > 0
    assert found["a"].as_record()["other_load"] is None
    assert environment(())["memory_gib"] is None
    ours = ("_measure", "_transforms", "_rivals", "transforms", "cuda.comparison", "cuda.device",
            "cuda.transforms", "cuda.layers", "cuda.models")  # fmt: skip
    for name in ours:  # imported anew, and put back
        module = sys.modules.get(f"benchmarks.{name}")
        if module is not None:
            parent, _, leaf = module.__name__.rpartition(".")
            monkeypatch.setattr(sys.modules[parent], leaf, module)
            monkeypatch.delitem(sys.modules, module.__name__)
    for check in ("device", "transforms", "layers", "models"):
        importlib.import_module(f"benchmarks.cuda.{check}")


# --- rivals ---


def rivals_of(*names, calls):
    def build(name):
        def step():
            calls.append(name)
            if name == "fails":
                raise torch.OutOfMemoryError(OOM)

        return step, {"trained": 3}

    return lambda: ({name: lambda name=name: build(name) for name in names}, 2**20)


def test_a_rival_that_fails_costs_only_its_own_row(session, card):
    calls, judged = [], []
    prepare = rivals_of("a", "fails", "b", calls=calls)
    compare(session, "load", prepare, judge=lambda rows, times: judged.append(set(times)))
    rows = session.rows()
    assert rows["load | fails"]["error"].startswith("out of memory")
    assert judged == [{"a", "b"}]
    for name in "ab":
        assert rows[f"load | {name}"]["ms"] > 0
        # The card of these tests hands out a MiB a question, and 16 more at the peak.
        assert rows[f"load | {name}"]["peak_mib"] == 18.0
        assert rows[f"load | {name}"]["trained"] == 3
        assert rows[f"load | {name}"]["waits"] == 0


def test_after_a_lost_device_only_the_others_are_measured_again(session, card):
    calls = []
    session.done |= {"load | a"}
    compare(session, "load", rivals_of("a", "b", calls=calls), judge=lambda *_: None)
    assert set(calls) == {"b"}
    session.done |= {"load | times"}
    calls.clear()
    compare(session, "load", rivals_of("b", calls=calls), judge=lambda *_: None)
    assert calls == []


@pytest.mark.parametrize(("left", "dropped"), [(9.0, []), (3.5, ["b"]), (0.5, ["a", "b"])])
def test_where_time_is_short_the_first_rivals_are_measured(left, dropped):
    # A rival whose step takes half a second takes three.
    assert _too_many({"a": 0.5, "b": 0.5}, left) == dropped


def test_a_rival_without_time_says_so(session, monkeypatch):
    monkeypatch.setattr("benchmarks.cuda.comparison._too_many", lambda *_: ["b"])
    compare(session, "load", rivals_of("a", "b", calls=[]), judge=lambda *_: None)
    assert session.rows()["load | a"]["ms"] > 0
    assert session.rows()["load | b"]["left_out"] == "no time for timing"


def test_waits_for_the_device_are_counted(session, card):
    def waits():
        for _ in range(2):
            warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    assert session.synchronisations_of(waits) == 2


@pytest.mark.parametrize("check", [transforms, layers, models, simulation, analysis])
def test_the_check_has_no_errors(check, session, card):
    check.check(session)
    rows = session.rows()
    errors = {key: row["error"] for key, row in rows.items() if "error" in row}
    assert errors == {}
    assert any(row.get("verdicts") for row in rows.values())
    assert all(row["final"] for row in rows.values())


def test_rivals_have_as_many_parameters_as_they_can(session):
    layer = layers.Layer(768, 1000, 1, 8)
    rivals, held = layers._rivals("cpu", layer)
    counts = {name: rivals[name]()[1]["trained"] for name in ("LoRA", "C3A", "SHiRA", "LoCA")}
    # C3A has pq/b with b a divisor of 768; SHiRA as many as a LoRA of a whole rank.
    assert counts == {"LoRA": 2 * 768 * 8, "C3A": 768, "SHiRA": 1536, "LoCA": 1000}
    assert held == 4 * (768 * 768 + 768)


def test_rivals_share_the_frozen_weights():
    base = layers.Single(8)
    copy = sharing_weights(base)
    assert copy.query is not base.query
    assert copy.query.weight is base.query.weight
    with_lora = adapted(copy, "LoRA", 5, 2)
    assert with_lora.base_model.model.query.base_layer.weight is base.query.weight
    assert isinstance(base.query, torch.nn.Linear)


def test_without_peft_loca_is_measured_by_itself_and_the_others_are_named(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    monkeypatch.setitem(sys.modules, "loca_theory.adapters", ModuleType("loca_theory.adapters"))
    layers.check(session)
    load = str(layers._TINY[0])
    rows = {row["rival"]: row for row in session.rows().values() if row.get("load") == load}
    assert rows["LoRA"]["left_out"].startswith("LoRA needs peft")
    for name in ("frozen", "LoCA", "LoCA locations", "LoCA implicit"):
        assert rows[name]["ms"] > 0, name
    assert rows["LoCA"]["in"] == "float32"
    assert rows["LoCA locations"]["trained"] == 60  # with the offsets


@pytest.mark.parametrize("has_peft", [True, False])
def test_the_rival_of_the_locations_learns_locations(has_peft, monkeypatch):
    if not has_peft:
        monkeypatch.setitem(sys.modules, "loca_theory.adapters", ModuleType("none"))
    model = adapted(layers.Single(8), "LoCA locations", 5, 2)
    assert (type(model).__name__ == "PeftModel") == has_peft
    model(torch.ones(3, 8)).sum().backward()
    (spectrum,) = [m for m in model.modules() if isinstance(m, CosineSpectrum)]
    assert spectrum.phase == "locations"
    assert spectrum.offset.grad is not None


def test_an_old_peft_names_what_it_does_not_have(session, monkeypatch):
    monkeypatch.delattr("peft.WaveFTConfig")
    layers.check(session)
    (reason,) = {row["left_out"] for row in session.rows().values() if "left_out" in row}
    assert re.fullmatch(r"peft [\d.]+ has no WaveFTConfig", reason)


def test_each_choice_about_entries_of_z_can_be_forced(monkeypatch):
    calls = []
    from_dense = layers.linear_operator.from_dense
    monkeypatch.setattr(
        layers.linear_operator, "from_dense", lambda *given: calls.append(1) or from_dense(*given)
    )
    before = layers.linear_operator.sampling_pays
    for choice, products in (("sampled", 0), ("one product", 1)):
        step, _ = layers._sampling_step("cpu", layers._TINY[0], f"materialised, {choice}")
        calls.clear()
        step()
        assert len(calls) == products
    assert layers.linear_operator.sampling_pays is before


@pytest.mark.parametrize("search", ["coefficients", "locations", "swap", "reselect"])
def test_the_steps_of_searches_do_what_they_are_named_by(search, monkeypatch):
    made = []

    def linear(*given, **options):
        made.append(original(*given, **options))
        return made[-1]

    original = layers.LoCALinear
    monkeypatch.setattr(layers, "LoCALinear", linear)
    step, _ = layers._search_step("cpu", layers._TINY[0], search)
    (spectrum,) = [m.spectrum for m in made]

    def state():
        return {name: value.clone() for name, value in spectrum.state_dict().items()}

    before = state()
    for _ in range(2):
        step()
    after = state()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert ("coefficients" in changed) == (search != "locations")
    assert ("indices" in changed) == (search in ("swap", "reselect"))
    assert ("offset" in changed) == (search == "locations")


def test_the_device_s_part_of_a_simulation_is_kept_where_the_cpu_has_no_time(session, card):
    card.setattr(simulation, "_TINY", ((16, (2,), ("R",), 1, 1e9),))
    simulation.check(session)
    (row,) = session.rows().values()
    assert row["left_out"].startswith("the CPU, which takes")
    assert row["s"] > 0
    assert row["peak_matrices"] == 17 * 2**20 / (8 * 16**2)  # a MiB a question, 16 at the peak


# --- the tests ---


@pytest.fixture
def file_of(tmp_path, monkeypatch):
    """Makes a file of tests that need a card, in a checkout of its own."""
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['cuda: x']\n")
    monkeypatch.setattr(suite, "ROOT", tmp_path)

    def made(text, name="test_found.py"):
        path = tmp_path / name
        path.write_text("import pytest\npytestmark = pytest.mark.cuda\n" + textwrap.dedent(text))
        return path

    return made


def test_each_test_is_a_row(session, file_of):
    text = """
    def test_passes(): pass
    def test_fails(): assert 1 == 2
    @pytest.mark.skip(reason="because")
    def test_skipped(): pass
    """
    files = [file_of(text), file_of("import not_installed", "test_broken.py")]
    suite.run(session, files)
    rows = {key.rpartition("::")[2]: row for key, row in session.rows().items()}
    outcomes = {name: row["outcome"] for name, row in rows.items()}
    assert outcomes == {
        "test_passes": "passed", "test_fails": "failed", "test_skipped": "skipped",
        "test_broken.py": "not collected",
    }  # fmt: skip
    assert "assert 1 == 2" in rows["test_fails"]["error"]
    assert "because" in rows["test_skipped"]["reason"]
    assert "No module named 'not_installed'" in rows["test_broken.py"]["error"]
    # A process that goes on after another leaves out what is done.
    said = len(session.lines_said())
    suite.run(session, files)
    assert len(session.lines_said()) == said


def test_a_test_that_loses_the_device_leaves_the_rest_to_another_process(session, card, file_of):
    card.setattr(torch.cuda, "synchronize", raising(RuntimeError(ILLEGAL)))
    text = """
    def test_a(): raise RuntimeError("CUDA error: device-side assert triggered")
    def test_b(): pass
    """
    with pytest.raises(PoisonedError, match="illegal memory access"):
        suite.run(session, [file_of(text, "test_lost.py")])
    (row,) = session.rows().values()
    assert row["outcome"] == "failed"


# --- the device ---


@pytest.mark.parametrize(
    ("available", "built_for", "says"),
    [
        (lambda: False, None, r"no CUDA: torch .* is built without it; install a build with it"),
        (raising(RuntimeError("driver shut down")), "13.0", r"CUDA does not start: driver shut"),
    ],
)
def test_a_torch_without_cuda_is_refused_in_one_line(monkeypatch, available, built_for, says):
    monkeypatch.setattr(torch.cuda, "is_available", available)
    monkeypatch.setattr(torch.version, "cuda", built_for)
    assert re.match(says, device.refusal())


def test_an_old_driver_is_refused_in_its_own_words(monkeypatch):
    def is_available():
        warnings.warn(
            "CUDA initialization: The NVIDIA driver on your system is too old (found version "
            "11040).\nPlease update", stacklevel=1,
        )  # fmt: skip
        return False

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    said = device.refusal()
    assert said.endswith("The NVIDIA driver on your system is too old (found version 11040).")


def test_no_card_beside_a_torch_with_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", raising(RuntimeError("No CUDA GPUs are available")))
    assert device.refusal().endswith(": No CUDA GPUs are available")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("CUDA error: no kernel image is available for execution on the device\n"),
         r"the card is too old or too new .* capability 5\.0, and torch .* for sm_80, sm_90"),
        (torch.OutOfMemoryError(OOM), r"the card has no memory left: 0\.5 GiB free of 16\.0 GiB"),
        (RuntimeError(ILLEGAL), r"the card fails at its first product: CUDA error: an illegal"),
    ],
)  # fmt: skip
def test_a_card_that_cannot_compute_is_refused_in_one_line(monkeypatch, error, says):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", raising(error))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (5, 0))
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**29, 2**34))
    said = device.refusal()
    assert re.match(says, said)
    assert "\n" not in said


def test_the_machine_is_described_with_what_is_missing(session, monkeypatch):
    find = device.importlib.util.find_spec
    monkeypatch.setattr(
        device.importlib.util, "find_spec", lambda name: None if name == "peft" else find(name)
    )
    device.check(session)
    row = session.rows()["device"]
    assert row["libraries"]["torch"] == torch.__version__
    assert row["libraries"]["peft"] is None
    assert row["missing"]["peft"] == "LoRA, FourierFT, WaveFT, C3A and SHiRA"

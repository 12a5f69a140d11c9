"""LoCA in PEFT's benchmark of methods: configurations, launcher, and results of its form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from peft import LoraConfig, PeftConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import experiments.method_comparison.__main__ as benchmark
from experiments.finetuning.settings import settings
from loca_theory.adapters import LoCAConfig

# PEFT calls it by the name that transformers 5 has replaced.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)

FOLDER = Path(benchmark.__file__).parent
ROOT = FOLDER.parents[1]
CONFIGURATIONS = sorted((FOLDER / "loca").iterdir())
TARGETS = ["q_proj", "v_proj"]
LAYERS = 28
TRAINED = {"llama-3.2-3B-n_frequency-5000": 280_000, "llama-3.2-3B-lora-rank32-parity": 9_175_040}
# Fields of TrainConfig that a folder of PEFT's may override; from MetaMathQA/utils.py.
TRAIN_CONFIG = {
    "model_id", "dtype", "max_seq_length", "batch_size", "batch_size_eval", "max_steps",
    "eval_steps", "compile", "use_gc", "query_template", "seed", "grad_norm_clip",
    "optimizer_type", "optimizer_kwargs", "lr_scheduler", "use_amp", "autocast_adapter_dtype",
    "generation_kwargs", "attn_implementation", "init_kv_cache_prefix",
}  # fmt: skip
# The keys of huggingface/peft, method_comparison/MetaMathQA/results/*.json, as PEFT 0.21 writes
# them. dataset_info has a key for each data set, and peft_config those of the method.
ABOUT = {"sha", "created_at"}
PACKAGES = ("transformers", "peft", "datasets", "bitsandbytes", "torch")
SCHEMA = {
    "run_info": {
        "created_at", "total_time", "experiment_name", "peft_branch", "peft_worktree_is_dirty",
        "train_config", "peft_config", "error_msg",
    },
    "train_info": {
        "accelerator_memory_reserved_avg", "accelerator_memory_max",
        "accelerator_memory_reserved_99th", "train_time", "file_size", "num_trainable_params",
        "num_total_params", "status", "metrics",
    },
    "meta_info": {"model_info", "dataset_info", "package_info", "system_info", "pytorch_info"},
}  # fmt: skip
SYSTEM = {"system", "release", "version", "machine", "processor", "accelerator"}
EVALUATION = {
    "step", "valid accuracy", "train loss", "train samples", "train time", "eval time",
    "tokens / sec", "mem allocated avg", "mem reserved avg", "elapsed time",
}  # fmt: skip
TEST = {
    "step", "test accuracy", "train loss", "train samples", "train total tokens", "forgetting",
}  # fmt: skip


def llama(layers):
    """Llama-3.2-3B with fewer layers and a small vocabulary, without memory for its weights."""
    with torch.device("meta"):
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=8, hidden_size=3072, intermediate_size=8192, num_hidden_layers=layers,
                num_attention_heads=24, num_key_value_heads=8, head_dim=128,
            )
        )  # fmt: skip


def trained(config, layers):
    return get_peft_model(llama(layers), config).get_nb_trainable_parameters()[0]


def check_numbers(folder, layers):
    config = PeftConfig.from_pretrained(folder)
    assert isinstance(config, LoCAConfig)
    assert config.target_modules == set(TARGETS)
    assert trained(config, layers) * LAYERS == TRAINED[folder.name] * layers
    if "parity" in folder.name:
        with torch.device("meta"):
            assert trained(LoraConfig(r=32, target_modules=TARGETS), layers) * LAYERS == (
                TRAINED[folder.name] * layers
            )


@pytest.mark.parametrize("folder", CONFIGURATIONS, ids=lambda folder: folder.name)
def test_configurations_train_the_stated_numbers(folder):
    """In each of the equal layers a 28th of them."""
    check_numbers(folder, 1)


@pytest.mark.deep
@pytest.mark.parametrize("folder", CONFIGURATIONS, ids=lambda folder: folder.name)
def test_configurations_train_the_stated_numbers_in_all_layers(folder):
    check_numbers(folder, LAYERS)


@pytest.mark.parametrize("folder", CONFIGURATIONS, ids=lambda folder: folder.name)
def test_training_parameters_are_those_that_peft_knows(folder):
    """PEFT replaces the optimiser's arguments as a whole."""
    given = json.loads((folder / "training_params.json").read_text(encoding="utf-8"))
    assert set(given) <= TRAIN_CONFIG
    assert set(given["optimizer_kwargs"]) == {"lr", "weight_decay"}


# What PEFT's run.py does with an experiment, on a small model: modules beside it, evaluation
# without gradients before the training and after it, weight decay, clipping and a schedule.
RUN = """
import sys
import torch
from utils import base
from peft import PeftConfig, get_peft_model

config = PeftConfig.from_pretrained(sys.argv[-1])
config.n_frequency, config.n_frequency_pattern, config.alternating_steps = 50, {}, 35
model = get_peft_model(base(), config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
tokens = torch.arange(16).reshape(2, 8)

@torch.inference_mode
def evaluate():
    model.eval()
    loss = model(input_ids=tokens, labels=tokens).loss.item()
    model.train()
    return loss

before = evaluate()
for _ in range(40):
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
assert evaluate() < before
print(config.peft_type.value, *sys.argv)
"""
UTILS = """
from transformers import LlamaConfig, LlamaForCausalLM

def base():
    return LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=16, intermediate_size=16,
                                        num_hidden_layers=1, num_attention_heads=2))
"""


def launch(folder, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / "launch.py", *arguments],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_the_launcher_runs_a_script_of_peft_with_loca(tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "utils.py").write_text(UTILS)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "loca").symlink_to(FOLDER / "loca")
    name = f"experiments/loca/{CONFIGURATIONS[0].name}"
    done = launch(tmp_path, "run.py", "-v", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["LOCA", "run.py", "-v", name]


def test_without_a_script_the_launcher_says_how_to_call_it(tmp_path):
    for arguments, says in (((), "there is no script"), (("nope.py",), "nope.py is not a file")):
        done = launch(tmp_path, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{says}; usage: python launch.py run.py")


def test_results_have_the_keys_of_peft(tmp_path, monkeypatch):
    methods = ("loca", "c3a")
    monkeypatch.setattr(benchmark, "METHODS", methods)
    arguments = ["--quick", "--quiet", "--out", str(tmp_path), "-j", "1", "--device", "cpu"]
    done = CliRunner().invoke(benchmark.main, arguments)
    assert done.exit_code == 0, done.output
    folder, chosen = tmp_path / "quick" / "method_comparison", settings("generation", quick=True)
    assert {path.name for path in folder.iterdir()} == {
        f"{method}--generation-rank2.json" for method in methods
    }
    for method in methods:
        result = json.loads((folder / f"{method}--generation-rank2.json").read_text())
        check_keys(result)
        run, train = result["run_info"], result["train_info"]
        assert run["peft_config"]["peft_type"] == method.upper()
        assert run["experiment_name"] == f"{method}/generation-rank2"
        assert train["status"] == "success"
        # Of 2 layers, the query and value matrices are 64 × 64; the head of 256 bytes is trained.
        assert train["num_trainable_params"] >= 4 * (64 + 64) * 2 + 64 * 256
        assert train["file_size"] > 4 * train["num_trainable_params"]
        *evaluations, test = train["metrics"]
        assert [entry["step"] for entry in evaluations] == [6, 12]
        assert 0 <= test["test accuracy"] <= 1
        assert test["train total tokens"] == 12 * chosen["batch"] * chosen["length"]


def check_keys(result):
    assert {name: set(part) for name, part in result.items()} == SCHEMA
    assert set(result["run_info"]["train_config"]) == TRAIN_CONFIG
    about = result["meta_info"]
    assert set(about["model_info"]) == set(about["dataset_info"]["generation"]) == ABOUT
    assert set(about["system_info"]) == SYSTEM
    assert set(about["package_info"]) == {
        f"{package}-{what}" for package in PACKAGES for what in ("version", "commit-hash")
    }
    *evaluations, test = result["train_info"]["metrics"]
    assert all(set(entry) == EVALUATION for entry in evaluations)
    assert set(test) == TEST

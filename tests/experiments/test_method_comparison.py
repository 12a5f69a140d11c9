"""LoCA in PEFT's benchmark of methods: configurations and launcher."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from loca_theory.adapters import LoCAConfig

# PEFT calls it by the name that transformers 5 has replaced.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning"
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "experiments" / "method_comparison"
CONFIGURATIONS = sorted((FOLDER / "loca").iterdir())
TARGETS = ["q_proj", "v_proj"]
LAYERS = 28
TRAINED = {"llama-3.2-3B-n_frequency-5000": 280_000, "llama-3.2-3B-lora-rank32-parity": 9_175_040}


def llama(layers):
    """Llama-3.2-3B with fewer layers and a small vocabulary, without memory for its weights."""
    with torch.device("meta"):
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=8, hidden_size=3072, intermediate_size=8192, num_hidden_layers=layers,
                num_attention_heads=24, num_key_value_heads=8, head_dim=128,
            )
        )  # fmt: skip


@pytest.mark.parametrize("folder", CONFIGURATIONS, ids=lambda folder: folder.name)
def test_configurations_train_the_stated_numbers(folder):
    """In each of the equal layers a 28th of them."""
    config = PeftConfig.from_pretrained(folder)
    assert isinstance(config, LoCAConfig)
    assert config.target_modules == set(TARGETS)
    configs = [config]
    if "parity" in folder.name:
        configs.append(LoraConfig(r=32, target_modules=TARGETS))
    for one in configs:
        with torch.device("meta"):
            model = get_peft_model(llama(1), one)
        assert model.get_nb_trainable_parameters()[0] * LAYERS == TRAINED[folder.name]


# As PEFT's run.py it imports a module beside it, and reads the configuration of an experiment.
RUN = """
import sys
import utils
from peft import PeftConfig

print(PeftConfig.from_pretrained(sys.argv[-1]).peft_type.value, utils.__name__, *sys.argv)
"""


def launch(folder, *arguments):
    return subprocess.run(
        [sys.executable, FOLDER / "launch.py", *arguments],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_the_launcher_runs_a_script_of_peft_with_loca(tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "utils.py").touch()
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "loca").symlink_to(FOLDER / "loca")
    name = f"experiments/loca/{CONFIGURATIONS[0].name}"
    done = launch(tmp_path, "run.py", "-v", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["LOCA", "utils", "run.py", "-v", name]


def test_without_a_script_the_launcher_says_how_to_call_it(tmp_path):
    for arguments, says in (((), "there is no script"), (("nope.py",), "nope.py is not a file")):
        done = launch(tmp_path, *arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{says}; usage: python launch.py run.py")

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
LAYERS = 28
TRAINED = {"llama-3.2-3B-n_frequency-5000": 280_000, "llama-3.2-3B-lora-rank32-parity": 9_175_040}


@pytest.mark.parametrize("name", TRAINED)
def test_configurations_train_the_stated_numbers(name):
    """In each of the equal layers a 28th of them: here Llama-3.2-3B has one, without memory."""
    configs = [PeftConfig.from_pretrained(FOLDER / "loca" / name)]
    assert isinstance(configs[0], LoCAConfig)
    if "parity" in name:
        configs.append(LoraConfig(r=32, target_modules=["q_proj", "v_proj"]))
    for config in configs:
        with torch.device("meta"):
            heads = {"num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128}
            widths = {"hidden_size": 3072, "intermediate_size": 8192}
            llama = LlamaConfig(vocab_size=8, num_hidden_layers=1, **widths, **heads)
            model = get_peft_model(LlamaForCausalLM(llama), config)
        assert config.target_modules == {"q_proj", "v_proj"}
        assert model.get_nb_trainable_parameters()[0] * LAYERS == TRAINED[name]


# As PEFT's run.py it imports a module beside it, and reads the configuration of an experiment.
RUN = """
import sys
import utils
from peft import PeftConfig

print(PeftConfig.from_pretrained(sys.argv[-1]).peft_type.value, utils.__name__, *sys.argv)
"""


def test_the_launcher_runs_a_script_of_peft_with_loca_or_says_how_to_call_it(tmp_path):
    (tmp_path / "run.py").write_text(RUN)
    (tmp_path / "utils.py").touch()
    (tmp_path / "experiments").symlink_to(FOLDER)

    def launch(*arguments):
        command = [sys.executable, FOLDER / "launch.py", *arguments]
        options = {"env": {"PYTHONPATH": str(ROOT), "PATH": ""}, "capture_output": True}
        return subprocess.run(command, cwd=tmp_path, text=True, check=False, **options)

    name = f"experiments/loca/{next(iter(TRAINED))}"
    done = launch("run.py", "-v", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["LOCA", "utils", "run.py", "-v", name]
    for arguments, says in (((), "there is no script"), (("nope.py",), "nope.py is not a file")):
        done = launch(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{says}; usage: python launch.py run.py")

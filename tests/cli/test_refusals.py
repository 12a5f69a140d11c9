"""Bad input of every command: one line that says what is wrong, an exit code, and no file.

The tests of the library have the texts of its own refusals; here are those that name an option.
"""

import re
import shlex

import pytest

PAIR = "base.safetensors tuned.safetensors"
SMALL = {
    "correlate": ("--K", 24, "--r", "2,4", "--draws", 25, "--quiet", "--jobs", 1),
    "toy": ("--problems", 30, "--steps", 400, "--quiet", "--jobs", 1),
    "extract": (*PAIR.split(), "--quiet"),
}
# The command, what is added to its small run; the exit code; a part of the line.
REFUSED = [
    ("simulat", 2, "unknown command 'simulat'; did you mean simulate? Otherwise choose from"),
    ("--verbose", 2, "No such option"),
    ("simulate -3", 2, "No such option '-3'; see loca-theory simulate --help"),
    ("simulate --r -3", 2, "'-3' is not a whole number between 1 and"),
    ("simulate --K 0", 2, "'0' is not a whole number between 1 and"),
    ("simulate --r 8..32..0", 2, "'0' in the range '8..32..0' is not a whole number between 1"),
    ("simulate --K 16 --r 1000", 2, "rank 1000 does not fit a 16x16 matrix: choose 1 <= r <= 8"),
    ("simulate --K 16 --r 1 768", 2, "unexpected extra argument (768); see loca-theory simulate"),
    ("simulate --K 16 --r 1 --seed one", 2, "'one' is not a valid integer."),
    ("simulate --K", 2, "Option '--K' requires an argument"),
    ("methods --out ''", 2, "Invalid value for '--out': the name of the folder is empty; give a"),
    ("figures --out \udcff", 2, "the name of the folder is not valid UTF-8; choose another"),
    ("simulate --r 1", 2, "give either --K LIST (square matrices) or --shape PxQ"),
    ("simulate --K 16", 2, "Missing option '--r'. Write a list such as 8,16,32 or an"),
    ("simulate --K 16..8 --r 1", 2, "is reversed; write a list such as"),
    ("simulate --K 16 --r 1 --draws 1000000000000000", 2, "is not in the range"),
    ("toy --problems 999999999999999", 2, "is not in the range"),
    ("toy --steps 999999999999999", 2, "is not in the range"),
    ("simulate --K 16 --r 1 --seed 1180591620717411303424", 2, "is not in the range"),
    ("simulate --K 16 --r 1 --value-bits 10000", 2, "is not in the range"),
    ("simulate --K 16 --r 1 --methods lorra", 2, "did you mean LoRA? Otherwise choose one of 4"),
    ("simulate --K 16 --r 1 --engine magic", 2, "'magic' is not one of"),
    ("simulate --K 16 --r 1 --methods D,DoRA --sampler reduced", 2, "sampler; use --sampler dense"),
    ("simulate --K 1000000 --r 8 --sampler dense --jobs 1", 1, "needs about 89,407 GiB for"),
    ("simulate --K 1000000 --r 8 --sampler dense --jobs 2", 1, "; use --sampler reduced, fewer"),
    ("simulate --K 90000000 --r 100 --draws 1 --jobs 1", 1, "; use --engine exact, fewer workers "),
    ("simulate --K 16 --r 1 --scheduler tcp://127.0.0.1:9", 2, "--scheduler ADDRESS needs"),
    ("correlate --rho 0..0.4", 2, "range with its step"),
    ("correlate --structures ar1 --fraction 0.1", 2, "--fraction LIST has no effect unless"),
    ("analyze '' tuned.safetensors", 2, "a path is empty; name a file or a folder"),
    ("analyze \x1b[31mnone tuned.safetensors", 2, r"there is no file or folder \x1b[31mnone"),
    ("analyze adapter base.safetensors", 2, "adapter is an adapter and cannot be the base; name"),
    ("analyze base.safetensors", 2, "pass the fine-tuned checkpoint as well"),
    ("analyze", 2, "give BASE and FINETUNED, or only --demo"),
    ("analyze base.safetensors --demo", 2, "or only --demo"),
    ("unmerge", 2, "give BASE and MERGED, or only --demo"),
    ("unmerge base.safetensors", 2, "give BASE and MERGED, or only --demo"),
    ("unmerge base.safetensors merged.safetensors --demo", 2, "or only --demo"),
    ("analyze PAIR --include zzz", 2, "change --include REGEX, --exclude REGEX or --max-size N"),
    ("analyze PAIR --bits 1,-2", 2, "bits must be above 0 and at most 16, not -2"),
    ("analyze readme.txt tuned.safetensors", 2, "neither a .safetensors nor"),
    ("analyze broken.safetensors tuned.safetensors", 1, "is not an intact safetensors"),
    ("extract", 2, "pass one of --r 8, --components 1000, --allocate 4MB or --energy 0.9"),
    ("extract --method lora --r 2 --out model", 1, "model/lora holds model.safetensors, which no"),
    ("extract --r 2 --check", 2, "cannot be checked, because the model is not known (no config"),
    ("extract --r 2 --requantise 3", 2, "are for the check of the adapter; pass --check as well"),
    ("extract --r 2 --cap 3", 2, "pass --allocate 4MB or --energy 0.9 as well"),
    ("extract --r 2 --save-module 'x{'", 2, "--save-module x{ cannot be stored"),
    ("verify nil theorem1.ordr", 2, "unknown claims 'nil', 'theorem1.ordr' (did you mean "),
    ("verify nil", 2, "`loca-theory verify --list` has all"),
    ("verify --quick --deep", 2, "--quick and --deep exclude each other"),
    ("figures sim_1 sim_9", 2, "unknown figure 'sim_9'; did you mean sim_3? Otherwise choose from"),
    ("figures budget --results nowhere", 1, "there is no folder nowhere; name the folder of the"),
    ("figures sim_1 --out readme.txt", 1, "cannot write to readme.txt: "),
    ("figures sim_1 budget", 1, "budget needs budgets-summary.parquet, which is not under "),
]


@pytest.fixture
def files(cwd, write_pair):
    """A pair of checkpoints, and what is none."""
    write_pair([f"layers.{i}.q_proj.weight" for i in range(2)])
    (cwd / "readme.txt").write_text("text")
    (cwd / "adapter").mkdir()
    (cwd / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (cwd / "model" / "lora").mkdir(parents=True)
    (cwd / "model" / "lora" / "model.safetensors").touch()
    (cwd / "broken.safetensors").write_bytes((cwd / "base.safetensors").read_bytes()[:-9])
    return set(cwd.rglob("*"))


@pytest.mark.parametrize(("line", "code", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_bad_input_is_one_line_and_nothing_else(cli, cwd, files, line, code, message):
    name, *words = shlex.split(line.replace("PAIR", PAIR))
    done = cli(name, *SMALL.get(name, ()), *words)
    assert message in done.err
    assert re.fullmatch(r"loca-theory: [^\n]+\n", done.err)
    assert (done.code, done.out) == (code, "")
    if name != "extract":  # which keeps the spectra that it has computed
        assert set(cwd.rglob("*")) == files

"""Random command lines: no traceback, one line on failure, no half-written file."""

import random
import re
import shutil

import click
import pytest

from loca_theory.cli.main import group

# What no option accepts, what only some accept, and what has surprised programs before.
ODD = ("", " ", "0", "-1", "1.5", "nan", "inf", "1e309", "9" * 40, "x", "é–漢", "--", "-", "a,b,,c",
       "1..", "..4", "4..1", "1...3", "1,2,,3", "{}", "%s", "*", "(", "[", "../..", "/", "~", "\t",
       "None", "1" * 400)  # fmt: skip
SMALL = {
    "sizes": ("8", "4,9", "5..7"),
    "size": ("8", "9"),
    "shape": ("6x9", "8x8"),
    "ranks": ("1", "1,2", "1..3"),
    "methods": ("R", "D", "R,D,S", "all", "no.module:here", "os:path"),
    "structures": ("ar1", "spiked,equicorrelated", "blocks"),
    "protocols": ("same-draw", "iid-reference"),
    "rho": ("0.1", "0,0.2", "0..0.2..0.1"),
    "fraction": ("0.1", "0..0.2..0.1"),
    "exponent": ("0.5",),
    "searches": ("central", "swap", "reselect"),
    "interpretations": ("default",),
    "components": ("1", "2", "3"),
    "conditions": ("gaussian",),
    "labels": ("sim_9", "budget"),
    "names": ("condition-u", "dct.", "D", "R", "my:Method"),
    "lr": ("0.02",),
    "location_lr": ("0.05",),
    "rank": ("1", "2"),
    "allocate": ("200", "1k", "4MB"),
    "energy": ("0.5", "1"),
    "include": ("query", "("),
    "exclude": ("value", "["),
    "max_size": ("100", "1k"),
    "device": ("cpu", "auto", "cuda:9", "tpu"),
    "jobs": ("1",),
    "seed": ("0", "7"),
    "base": ("base", "nowhere", "pair", "file.bin", "hub:", "text.safetensors"),
    "tuned": ("tuned", "nowhere", "pair", "file.bin", "text.safetensors"),
    "level": ("0.05", "0", "1"),
    "rho_columns": ("0.1", "1"),
    "results": ("nowhere", "pair"),
    "ledger_path": ("nowhere", "file.bin", "text.safetensors"),
    "save_modules": ("norm", "("),
    "block": ("2", "3"),
}
# These bound the work, and are always given.
BOUNDS = {
    "draws": ("1", "2", "3"),
    "null_draws": ("20",),
    "problems": ("1", "2"),
    "steps": ("1", "3"),
    "K": ("8", "16"),
    "r": ("1", "2"),
    "jobs": ("1",),
}
SMALLER = {
    "simulate": ("sizes", "ranks"),
    "correlate": ("size", "ranks"),
    "toy": ("searches",),
    "analyze": (),
    "extract": (),
    "methods": (),
    "verify": ("names",),
    "figures": ("labels",),
}
# These take seconds whatever else is given; --debug asks for a traceback.
LEFT_OUT = {"deep", "demo", "pictures", "backend", "scheduler", "debug"}


@pytest.fixture
def folders(here):
    """Some inputs that are there but wrong."""
    (here / "pair").mkdir()
    (here / "base").mkdir()
    (here / "file.bin").write_bytes(bytes(range(256)))
    (here / "text.safetensors").write_text("not a checkpoint", encoding="utf-8")
    return here


def command_line(draw):
    """A random command line; about half of its values are valid."""
    context = click.Context(group)
    name = draw.choice(sorted(SMALLER))
    line = [name]
    for param in group.get_command(context, name).params:
        is_bound = param.name in BOUNDS or param.name in SMALLER[name]
        if param.name in LEFT_OUT or (not is_bound and draw.random() < 0.75):
            continue
        own = (*BOUNDS.get(param.name, ()), *SMALL.get(param.name, ()))
        if isinstance(param.type, click.Choice):
            own = tuple(param.type.choices)
        if param.name == "out":
            own = ("new", "new/deeper", "pair", "file.bin")
        value = draw.choice(own) if own and draw.random() < 0.85 else draw.choice(ODD)
        if isinstance(param, click.Argument):
            line.append(value)
        else:
            line += [draw.choice(param.opts)] + ([] if param.is_flag else [value])
    if draw.random() < 0.1:
        line.insert(draw.randint(0, len(line)), draw.choice((*ODD, "--no-such-option")))
    return line


def assert_well_behaved(cli, here, line):
    """It ends with a known code; a failure is one line that says what; no half-written file."""
    for name in ("new", "loca-results"):
        shutil.rmtree(here / name, ignore_errors=True)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    done = cli(*line)
    assert "Traceback" not in done.out + done.err, done.err
    if done.code in (1, 2):
        said = [one for one in done.err.splitlines() if one.startswith("loca-theory: ")]
        assert len(said) == 1 or "Usage:" in done.err, done.err
    for path, content in before.items():
        if path.name in ("file.bin", "text.safetensors"):
            assert path.read_bytes() == content, f"{path} was changed"
    partial = [path for path in here.rglob("*") if re.search(r"\.(tmp|part)|~$", path.name)]
    assert not partial


@pytest.mark.parametrize(
    "count", [25, pytest.param(2000, marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_no_command_line_ends_in_a_traceback(cli, folders, count, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    draw = random.Random(count)
    for _ in range(count):
        line = command_line(draw)
        if any("\0" in word for word in line):
            continue
        try:
            assert_well_behaved(cli, folders, line)
        except AssertionError as error:
            msg = f"loca-theory {' '.join(map(repr, line))}: {error}"
            raise AssertionError(msg) from error

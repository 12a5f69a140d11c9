"""Tables and progress in terminals of any width: no number is cut off."""

import re

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_file

from loca_theory.cli.output import Rows
from loca_theory.sweeps.progress import progress_bar

WIDTHS = [40, 60, 80, 120, 200]


@pytest.fixture
def terminal(monkeypatch):
    """Make stdout and stderr a terminal of so many columns."""

    def make(width):
        monkeypatch.setattr(Console, "is_terminal", True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")

    return make


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def pair(here):
    """Matrices with long names, a normal one and one that is not finite."""
    source = torch.Generator().manual_seed(0)
    names = [f"backbone.stages.{i}.a_rather_long_name.{kind}_proj.weight" for i in (0, 1)
             for kind in "qv"]  # fmt: skip
    base = {name: torch.randn(32, 32, generator=source) for name in names}
    tuned = {name: w + 0.01 * torch.randn(w.shape, generator=source) for name, w in base.items()}
    tuned[names[0]][0, 0] = float("nan")
    for name, content in (("base", base), ("tuned", tuned)):
        save_file(content, here / f"{name}.safetensors")
    return "base.safetensors", "tuned.safetensors"


STUDY = ("--jobs", 1, "--quiet")
COMMANDS = {
    "simulate": (("--K", 64, "--r", "1,2,32", "--draws", 4, *STUDY), r"0\.\d{4}"),
    "correlate": (("--K", 16, "--r", "2..6..2", "--draws", 4, "--structures", "spiked",
                   "--fraction",
                   "0..0.4..0.2", *STUDY),
                  r"\d+%"),
    "toy": (("--problems", 4, "--steps", 40, "--search", "central,annealed-pursuit",
             "--interpretation",
             "default,standard-deviation,indices", *STUDY), r"\d+\.\.\d+%"),
}  # fmt: skip


def numbers(text, pattern):
    return sorted(re.findall(pattern, text))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_a_table_is_there_at_every_width(cli, terminal, name):
    arguments, pattern = COMMANDS[name]
    whole = numbers(cli(name, *arguments).out, pattern)
    assert whole
    for width in WIDTHS:
        terminal(width)
        shown = plain(cli(name, *arguments).out)
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        assert numbers(shown, pattern) == whole


@pytest.mark.parametrize("width", WIDTHS)
def test_an_analysis_is_readable_at_every_width(cli, pair, terminal, width):
    terminal(width)
    shown = plain(cli("analyze", *pair, "--r", "2", "--quiet").out)
    tables = shown[: shown.index("At the budget")]
    said = "names are without the prefix 'backbone.stages.'" in " ".join(tables.split())
    assert said == (width <= 80)
    assert "…" not in tables
    code = re.search(r"^from .*?^\)$", shown, flags=re.MULTILINE | re.DOTALL)[0]
    assert max(map(len, shown.replace(code, "").splitlines())) <= width
    compile(code, "what is copied", "exec")  # no line of it is broken
    assert "config = " in code
    # What four forms retain of three matrices, of them together, and of independent entries.
    assert len(re.findall(r" \d+\.\d%", tables)) == 4 * 5
    assert {"LoRA", "LoCA", "entries", "FourierFT", "shape", "rank", "90%"} <= set(tables.split())


def test_columns_counts_in_a_pipe(cli, pair, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    shown = cli("analyze", *pair, "--r", "2", "--quiet").out
    lines = shown[: shown.index("from ")].splitlines()
    assert 60 < max(map(len, lines)) <= 72


@pytest.mark.parametrize("width", WIDTHS)
def test_an_extraction_is_readable_at_every_width(cli, pair, terminal, width):
    terminal(width)
    shown = plain(cli("extract", *pair, "--components", "1000", "--quiet").out)
    assert "…" not in shown
    assert shown.count(" 1,000") >= 3
    assert {"shape", "components", "numbers", "retained"} <= set(shown.split())


def printed(width, *rows):
    out = Console(width=width, color_system=None)
    cells = [dict(zip(("name", "first", "second", "third"), row, strict=True)) for row in rows]
    with out.capture() as capture:
        Rows(cells).print(out)
    return [line.split() for line in capture.get().splitlines() if "─" not in line]


def test_a_table_that_fits_is_printed_as_it_is():
    row = ["a", "1.234567", "2.345678", "3.456789"]
    assert printed(34, row) == [["name", "first", "second", "third"], row]


def test_one_that_does_not_is_spread_with_the_names_in_front_of_each_part():
    rows = ("a", "1.234567", "2.345678", "3.456789"), ("b", "", "", "4.567890")
    assert printed(32, *rows) == [
        ["name", "first", "second"],
        ["a", "1.234567", "2.345678"],
        [],
        ["name", "third"],
        ["a", "3.456789"],
        ["b", "4.567890"],
    ]


def test_long_names_are_folded_first():
    head, *lines = printed(60, ("abcdefghij" * 6, "1.234567", "2.345678", "3.456789"))
    assert head[0] == "name"
    assert [line[0] for line in lines] == ["abcdefghij" * 3] * 2


def test_progress_counts_in_the_unit_of_the_command(terminal, capfd):
    terminal(80)
    with progress_bar("searching", "matrices") as progress:
        progress(0, 3)
        progress.title("found")
        progress(3, 3)
    assert re.search(r"found .* 3 of 3 matrices 00:00", plain(capfd.readouterr().err))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_progress_is_one_line(terminal, capfd, width):
    terminal(width)
    with progress_bar("simulating", "blocks") as progress:
        progress(0, 128)
        progress(3, 128)
    lines = plain(capfd.readouterr().err).splitlines()
    assert any("3 of 128" in line for line in lines)
    assert all("simulating" in line for line in lines if line.strip())

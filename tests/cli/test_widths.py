"""Tables and progress in terminals of any width: no number is cut off."""

import re

import pytest
from rich.console import Console

from loca_theory.sweeps.progress import progress_bar

WIDTHS = [40, 80, 120]


@pytest.fixture
def terminal(monkeypatch):
    """Make stdout and stderr a terminal of a given width."""

    def make(width):
        monkeypatch.setattr(Console, "is_terminal", True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("TERM", "xterm")

    return make


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.fixture
def pair(write_pair):
    """Matrices with long names, of which one is not finite."""
    start, kinds = "backbone.stages", ("q_proj", "v_proj")
    names = [f"{start}.{i}.a_rather_long_name.{kind}.weight" for i in (0, 1) for kind in kinds]
    return write_pair(names, damaged=names[0])


COMMANDS = {
    "simulate": ("--K 64 --r 1,2,32 --draws 4", r"0\.\d{4}"),
    "correlate": ("--K 16 --r 2,4,6 --draws 4 --structures spiked --fraction 0,0.2,0.4", r"\d+%"),
    "toy": (
        (
            "--problems 4 --steps 40 --search central,annealed-pursuit "
            "--interpretation default,standard-deviation,indices"
        ),
        r"\d+\.\.\d+%",
    ),
}


def numbers(text, pattern):
    return sorted(re.findall(pattern, text))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_number_of_a_table_is_there_at_every_width(cli, terminal, name):
    words, pattern = COMMANDS[name]
    arguments = (*words.split(), "--jobs", 1, "--quiet")
    expected = numbers(cli(name, *arguments).out, pattern)
    assert expected
    for width in WIDTHS:
        terminal(width)
        shown = plain(cli(name, *arguments).out)
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        assert numbers(shown, pattern) == expected


@pytest.mark.parametrize("width", WIDTHS)
def test_an_analysis_is_readable_at_every_width(cli, pair, terminal, width):
    terminal(width)
    shown = plain(cli("analyze", *pair, "--r", "2", "--config", "--quiet").out)
    tables = shown[: shown.index("The adapter that")]
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


@pytest.mark.parametrize("width", WIDTHS)
def test_an_extraction_in_a_pipe_is_as_wide_as_columns(cli, pair, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    shown = cli("extract", *pair, "--components", "1000", "--quiet").out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    assert shown.count(" 1,000") >= 3
    assert {"shape", "components", "numbers", "retained"} <= set(shown.split())


@pytest.mark.parametrize("width", [40, 60, 80])
def test_progress_is_one_line_in_the_unit_of_the_command(terminal, capfd, width):
    terminal(width)
    with progress_bar("searching", "matrices") as progress:
        progress(0, 128)
        progress.title("found")
        progress(3, 128)
    lines = plain(capfd.readouterr().err).splitlines()
    assert any("3 of 128" in line for line in lines)
    assert all(re.search("searching|found", line) for line in lines if line.strip())
    assert width < 80 or re.search("found .* 3 of 128 matrices", "\n".join(lines))

"""Names in checkpoints that would steer a terminal or be formulas in a spreadsheet."""

import csv
import io
import json
from unicodedata import category

import pytest

from loca_theory.cli.printable import printable

NAMES = [
    "layers.0.\x1b[2Jcleared.weight",
    "layers.0.two\nlines.weight",
    "layers.0.\u202eturned\x9b1m.weight",
    "layers.0.[bold]markup.weight",
    "=1+1.weight",
    "@sum.weight",
]
SKIPPED, DAMAGED = "layers.1.\x1b]0;title\x07\nnorm", "layers.2.\x1b[31mdamaged.weight"
COMMANDS = {
    "analyze": ("--r", "2"),
    "extract": ("--components", "20", "--out", "adapter"),
}


@pytest.fixture
def pair(write_pair):
    return write_pair((*NAMES, DAMAGED), (20, 24), SKIPPED, DAMAGED)


def steering(text):
    """Characters that a terminal obeys instead of showing them."""
    return {char for char in text if category(char) in ("Cc", "Cf", "Zl", "Zp")} - {"\n"}


@pytest.mark.parametrize("command", COMMANDS)
def test_only_json_has_the_names_as_they_are(cli, pair, command):
    words = (command, *pair, *COMMANDS[command])
    done = cli(*words)
    assert done.code == 4
    assert not steering(done.out + done.err)
    for name in NAMES:
        assert printable(name.removesuffix(".weight")) in done.out
    assert r"layers.1.\x1b]0;title\x07\nnorm" in done.out
    assert r"the first: layers.2.\x1b[31mdamaged.weight" in done.err
    done = cli(*words, "--format", "csv")
    assert not steering(done.out + done.err)
    # Escapes, and no formulas.
    expected = {printable(name) for name in NAMES[:4]} | {"'=1+1.weight", "'@sum.weight"}
    assert {row["name"] for row in csv.DictReader(io.StringIO(done.out))} == expected
    done = cli(*words, "--format", "json", "--quiet")
    assert not steering(done.out)
    document = json.loads(done.out)
    assert {row["name"] for row in document["rows"]} == set(NAMES)
    assert {matrix["name"] for matrix in document["skipped"]} == {SKIPPED, DAMAGED}

"""``loca-theory methods``: what each method is and costs, at a size and rank."""

import json

import pytest

from loca_theory.expressivity import METHODS, Budget


def listed(cli, *options):
    done = cli("methods", "--format", "json", *options)
    assert done.code == 0
    return {row["name"]: row for row in json.loads(done.out)["methods"]}


@pytest.mark.parametrize(("options", "budget"), [
    ((), Budget(768, 768, 8)), (("--K", 12, "--r", 3), Budget(12, 12, 3)),
])  # fmt: skip
def test_the_costs_are_those_at_the_size_and_rank(cli, options, budget):
    rows = listed(cli, *options)
    assert list(rows) == list(METHODS)
    for name, method in METHODS.items():
        is_priced = method.exists(budget) and method.parameters(budget) is not None
        assert rows[name]["parameters"] == (method.parameters(budget) if is_priced else None)
        assert rows[name]["stored_bits"] == (method.stored_bits(budget) if is_priced else None)
        assert rows[name]["is_oracle"] == method.is_oracle
        assert rows[name]["reference"] == method.reference


def test_a_method_that_does_not_exist_there_has_no_costs(cli):
    assert listed(cli, "--K", 12, "--r", 3)["GraLoRA"]["parameters"] is None
    assert listed(cli, "--K", 12, "--r", 2)["GraLoRA"]["parameters"] == 48


def test_the_table_shows_them(cli):
    done = cli("methods", "D", "GraLoRA", "U", "--K", 9, "--r", 2)
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.strip()}
    assert "parameters" in lines["method"]
    assert "stored bits" in lines["method"]
    assert " yes " in lines["LoCA"]
    assert " 18 " in lines["LoCA"]
    assert " 36 " not in lines["GraLoRA"]


def test_every_published_adapter_names_its_publication(cli):
    rows = listed(cli)
    references = [row["reference"] for row in list(rows.values())[12:]]
    assert all(one.startswith(("arXiv:", "openreview:")) for one in references)

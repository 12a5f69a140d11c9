"""The transcribed tables, the LaTeX parser and the comparison, without the paper."""

import dataclasses
from decimal import Decimal
from itertools import chain

import pytest
from click.testing import CliRunner

from experiments.paper import TABLES, load, parse
from experiments.paper.__main__ import main
from experiments.paper.compare import compare, read_source
from experiments.paper.latex import grid, key, plain, read_cell, read_number, uncommented
from loca_theory.errors import InvalidArgumentError

# Training examples of the GLUE tasks, which the paper does not print.
GLUE_SIZES = {"CoLA": 8551, "MNLI": 392_702, "MRPC": 3668, "QNLI": 104_743, "QQP": 363_846,
              "RTE": 2490, "SST-2": 67_349, "STS-B": 5749}  # fmt: skip

SAMPLE = r"""
\documentclass{article}
% \label{tab:results} in a comment is not a label
\begin{table}[t]
  \caption{100\% made up. % 99.9
  }
  \label{tab:results}
  \resizebox{\linewidth}{!}{
  \begin{tabular}{@{}c|l|r|cc@{}}
  \toprule
  \multirow{2}{*}{\bf Model} & \multirow{2}{*}{Method} & \multicolumn{1}{c|}{Size} &
    \multicolumn{2}{c}{{\bf Tasks ($\mathcal{B}$ =2,000)}} \\ \cmidrule{4-5}
  & & & {\begin{tabular}[c]{@{}c@{}} {\bf One} \\ Acc\end{tabular}} & ~~Two~~ \\ \midrule \midrule
   & FT $\ddagger$ & 125M & {\bf 63.6} & 92\textsubscript{$\pm$.5} \\
  % & Gone & 1M & 1 & 2 \\
  \multirow{6}{*}{\rotatebox[origin=c]{90}{\begin{tabular}[c]{@{}c@{}} Net\\ small\end{tabular}}}
   & Adapter\textsuperscript{D} & \textcolor{black}{0.043M} & - & \underline{81.5} \\
   & \textcolor{black}{{\bf LoCA }} & 72K &
     \textcolor{black}{\textbf{94.10}\textsuperscript{\scriptsize{$\pm$0.21}}} & 3,828 \\[2pt]
   & LoCA & 0.24M & \textbf{95.10\textsuperscript{\scriptsize{$\pm$0.00}}} & 5 \\ \midrule
  \multirow{1}{*}{Net-large} & LoCA & 144K & 7 & 8.0 \\ \bottomrule
  \end{tabular}}
\end{table}
\begin{wraptable}{r}{0.5\textwidth}
  \begin{tabular}{llcc} \toprule
  Method & Setting & small & large \\ \midrule
  \multirow{3}{*}{Common} & Where & \multicolumn{2}{c}{Query, Value} \\
   & Random Seeds & \multicolumn{2}{c}{\{6,66,666\}} \\
   & Learning Rate & 1e-2 & 5e-4 \\ \midrule
  LoCA & Components & \multicolumn{2}{c}{3000 and 10,000} \\
   & $\mathcal{B}_s$ & 120 & - \\ \bottomrule
  \end{tabular}
  \label{tab:settings}
\end{wraptable}
\section{Ways} \label{sec:ways} We used $\mathcal{B}_a$ = 10 steps.
"""

RESULTS = """
table = { label = "tab:results", title = "made up", kind = "results" }
axes = { group = ["model"], line = ["method"], column = ["field"] }
printed = { FF = "FT", Adapter-D = "Adapter D" }
[fields]
parameters = { printed = "Size" }
One = { printed = "Tasks (B = 2000) One Acc", metric = "accuracy", frequency_components = 2000 }
Two = { printed = "Tasks (B = 2000) Two", metric = "accuracy", frequency_components = 2000 }
[[rows]]
model = "Net small"
method = "FF"
prior_work = true
values = { parameters = 125_000_000, One = 63.6, Two = 92 }
spreads = { Two = 0.5 }
[[rows]]
model = "Net small"
method = "Adapter-D"
values = { parameters = 43_000, Two = 81.5 }
[[rows]]
model = "Net small"
method = "LoCA"
values = { parameters = 72_000, One = 94.1, Two = 3828 }
spreads = { One = 0.21 }
[[rows]]
model = "Net small"
method = "LoCA"
values = { parameters = 240_000, One = 95.1, Two = 5 }
spreads = { One = 0.0 }
[[rows]]
model = "Net-large"
method = "LoCA"
values = { parameters = 144_000, One = 7, Two = 8 }
""".replace("B = 2000", "B = 2,000")

SETTINGS = """
table = { label = "tab:settings", title = "made up", kind = "hyperparameters" }
axes = { group = ["method"], line = ["field"], column = ["model"] }
printed = { "*" = "Common" }
[fields]
targets = { printed = "Where" }
seeds = { printed = "Random Seeds" }
rate = { printed = "Learning Rate" }
frequency_components = { printed = "Components" }
alternating_steps = { printed = "B_s" }
[[rows]]
values = { targets = ["Query", "Value"], seeds = [6, 66, 666] }
[[rows]]
model = "small"
values = { rate = 1e-2 }
[[rows]]
model = "large"
values = { rate = 5e-4 }
[[rows]]
method = "LoCA"
values = { frequency_components = [3000, 10_000] }
[[rows]]
model = "small"
method = "LoCA"
values = { alternating_steps = 120 }
"""

STATED = r"""
table = { label = "", title = "made up", kind = "text" }
fields = { steps = { printed = 'We used $\mathcal{B}_a$ =' } }
rows = [{ method = "LoCA", values = { steps = 10 } }]
"""

SAMPLES = {"results": RESULTS, "settings": SETTINGS, "stated": STATED}
SOURCE = uncommented(SAMPLE)
MINIMAL = 'table = { label = "", title = "", kind = "text" }\nfields = { a = { printed = "a" } }\n'

each_table = pytest.mark.parametrize("name", TABLES)


def transcribed():
    return [parse(name, text) for name, text in SAMPLES.items()]


def differences(tables, source=SOURCE):
    found = compare(tables, source)
    return [difference for one in found for difference in one.disagreements]


def with_row(table, index, **changes):
    rows = list(table.rows)
    rows[index] = dataclasses.replace(rows[index], **changes)
    return dataclasses.replace(table, rows=tuple(rows))


def mutated(value):
    """The value with a typing error: a digit more, or a letter."""
    if isinstance(value, tuple):
        return (*value[:-1], mutated(value[-1]))
    return value + "x" if isinstance(value, str) else value * 10 + 1


def mutations(table):
    for i, row in enumerate(table.rows):
        for name, value in row.values.items():
            yield name, with_row(table, i, values={**row.values, name: mutated(value)})
        for name, value in row.spreads.items():
            yield name, with_row(table, i, spreads={**row.spreads, name: mutated(value)})


def numbers(table, word):
    """Every number of the fields with this word in their name."""
    for row in table.rows:
        for name, value in row.values.items():
            if word in name:
                yield from value if isinstance(value, tuple) else (value,)


# The transcribed tables.


def test_every_label_of_the_paper_is_there_once():
    labels = [load(name).label for name in TABLES if load(name).label]
    assert len(labels) == len(set(labels)) == 11


@each_table
def test_a_table_says_what_it_is(name):
    table = load(name)
    assert table.title
    assert table.rows
    assert (table.kind == "text") == (not table.label)
    used = set(chain.from_iterable(row.values for row in table.rows))
    assert used == set(table.fields)


POSITIVE = ("learning_rate", "scaling", "batch_size", "epochs", "_steps", "rank", "parameters",
            "frequency_components", "max_length", "speed", "memory")  # fmt: skip


@each_table
def test_what_must_be_positive_is(name):
    assert all(number > 0 for word in POSITIVE for number in numbers(load(name), word))


@each_table
def test_learning_rates_and_fractions_are_below_one(name):
    table = load(name)
    words = ("learning_rate", "weight_decay", "warmup_ratio", "dropout", "label_smoothing")
    assert all(0 <= number < 1 for word in words for number in numbers(table, word))


@each_table
def test_counts_are_whole(name):
    table = load(name)
    words = ("_steps", "epochs", "batch_size", "frequency_components", "parameters", "seeds")
    assert all(type(number) is int for word in words for number in numbers(table, word))


@each_table
def test_percentages_and_spreads(name):
    table = load(name)
    for row in table.rows:
        for field in row.values:
            if table.fields[field].unit == "%":
                assert 0 < row.values[field] < 100
        for field, spread in row.spreads.items():
            # The one standard deviation that cannot be is explained beside it.
            assert 0 <= spread < 2 or field in row.notes


@pytest.mark.parametrize("name", ["glue_results", "vit_results"])
def test_averages_are_those_of_the_printed_values(name):
    odd = []
    for row in load(name).rows:
        scores = [v for key, v in row.values.items() if key not in ("parameters", "average")]
        digits = 1 if name == "glue_results" else 2
        within = abs(sum(scores) / len(scores) - row.values["average"]) <= 0.5001 * 10**-digits
        if not within:
            odd.append(row)
    assert all("average" in row.notes for row in odd)


@pytest.mark.parametrize("model", ["RoBERTa-base", "RoBERTa-large"])
@pytest.mark.parametrize("task", GLUE_SIZES)
def test_alternation_ends_before_training_on_glue(model, task):
    settings = load("glue_hyperparameters").settings(model=model, method="LoCA", task=task)
    steps = -(-GLUE_SIZES[task] // settings["batch_size"]) * settings["epochs"]
    assert settings["alternating_steps"] < steps
    if (model, task) == ("RoBERTa-base", "MRPC"):
        assert (
            steps == load("stated").settings(model=model, method="LoCA", task=task)["total_steps"]
        )


def test_alternation_ends_before_training_on_stable_diffusion():
    settings = load("diffusion_hyperparameters").settings(method="LoCA")
    assert settings["alternating_steps"] < settings["total_steps"]
    assert "alternating_steps" not in load("diffusion_hyperparameters").settings(method="FourierFT")


@pytest.mark.parametrize(
    ("results", "model", "matrices", "components"),
    [
        ("e2e_results", "GPT-2 medium", 2 * 24, 1000),
        ("e2e_results", "GPT-2 large", 2 * 36, 1000),
        ("glue_results", "RoBERTa-base", 2 * 12, 1000),
        ("glue_results", "RoBERTa-large", 2 * 24, 1000),
        ("vit_results", "ViT-base", 2 * 12, 3000),
        ("vit_results", "ViT-large", 2 * 24, 3000),
        ("instruction_results", "LLaMA1-7b", 2 * 32, 150_000),
        ("instruction_results", "LLaMA2-13b", 2 * 40, 150_000),
    ],
)
def test_parameters_are_components_times_matrices(results, model, matrices, components):
    row = load(results).select(model=model, method="LoCA")[0]
    assert row.parameters == matrices * components


def test_a_narrower_row_wins_and_common_ones_count():
    settings = load("vit_hyperparameters").settings(model="ViT-large", method="LoRA")
    assert (settings["rank"], settings["learning_rate_head"]) == (16, 1e-3)
    assert settings["seeds"] == (2020, 2021, 2022, 2023, 2024)


# The parser.


@pytest.mark.parametrize(
    ("text", "number"),
    [("3,828", "3828"), ("1e-4", "0.0001"), (".07", "0.07"), ("0.043M", "43000"), ("13B", "13e9"),
     ("-1.5", "-1.5"), ("72 K", "72000"), ("LLaMA-7B", None), ("", None), ("1,23", None),
     ("M", None), ("e-4", None)],
)  # fmt: skip
def test_numbers(text, number):
    assert read_number(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("latex", "value", "spread"),
    [
        (r"8.5\textsubscript{$\pm$.07}", Decimal("8.5"), Decimal("0.07")),
        (r"\textbf{9.7}\textsuperscript{\scriptsize{$\pm$0.03}}", Decimal("9.7"), Decimal("0.03")),
        (r"9.7$\pm$?", "9.7±?", None),
        (r"\{6,66,666\}", (Decimal(6), Decimal(66), Decimal(666)), None),
        ("3000 and 10,000", (Decimal(3000), Decimal(10_000)), None),
        (r" \multirow{2}{*}{\rotatebox[origin=c]{90}{GPT}} ", "GPT", None),
        ("-", None, None),
        ("", None, None),
        ("Query, Value", "Query, Value", None),
    ],
    ids=["spread", "nested spread", "unreadable spread", "braces", "and", "rotated", "dash",
         "blank", "words"],
)  # fmt: skip
def test_cells(latex, value, spread):
    configuration = read_cell(plain(latex))
    assert (configuration.value, configuration.spread) == (value, spread)


def test_grid_of_the_sample():
    found = grid(SOURCE, "tab:results")
    assert [key(heading) for heading in found.headings] == [
        "model", "method", "size", "tasksb2000oneacc", "tasksb2000two"
    ]  # fmt: skip
    assert [line.block for line in found.lines] == [1, 1, 1, 1, 2]
    assert all(len(line.cells) == 5 for line in found.lines)


def test_comments_go_and_percent_signs_stay():
    assert uncommented("a % b\n100\\% c\\\\% d") == "a \n100\\% c\\\\"


# The comparison.


def test_a_true_transcription_agrees():
    assert differences(transcribed()) == []
    assert all(one.compared for one in compare(transcribed(), SOURCE))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_mutated_value_and_spread_is_found(name):
    count = 0
    for field, wrong in mutations(parse(name, SAMPLES[name])):
        found = differences([wrong])
        assert found, field
        assert all(field in difference.field for difference in found)
        count += 1
    assert count


def test_a_mutated_number_in_the_latex_is_found():
    (found,) = differences(transcribed(), SOURCE.replace("94.10", "94.01"))
    assert str(found) == (
        "results.toml, Net small, LoCA, One: transcribed 94.1, printed 94.01±0.21"
    )


def test_exchanged_rows_of_one_name_are_found():
    table = parse("results", RESULTS)
    first, second = 2, 3
    rows = list(table.rows)
    rows[first], rows[second] = rows[second], rows[first]
    assert differences([dataclasses.replace(table, rows=tuple(rows))])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: dataclasses.replace(t, rows=t.rows[:-1]), "transcribed nothing, printed 144K"),
        (lambda t: with_row(t, 0, prior_work=False), "prior_work: transcribed False"),
        (lambda t: with_row(t, 0, spreads={}), "spread of Two: transcribed nothing"),
        (lambda t: with_row(t, 1, spreads={"Two": 1.0}), "spread of Two: transcribed 1.0"),
        (lambda t: with_row(t, 1, values={**t.rows[1].values, "One": 1.0}), "printed -"),
        (lambda t: with_row(t, 0, method="unheard of"), "no such line"),
        (lambda t: dataclasses.replace(t, fields={**t.fields, "One": t.fields["Two"]}), "One"),
        (
            lambda t: dataclasses.replace(
                t, fields={**t.fields, "One": dataclasses.replace(t.fields["One"], printed="?")}
            ),
            "no such column",
        ),
        (
            lambda t: dataclasses.replace(
                t,
                fields={
                    **t.fields,
                    "One": dataclasses.replace(t.fields["One"], frequency_components=5000),
                },
            ),
            "frequency_components: transcribed 5000",
        ),
    ],
    ids=["row left out", "mark", "spread left out", "spread invented", "value invented",
         "unknown method", "wrong column", "unknown column", "budget"],
)  # fmt: skip
def test_what_else_can_be_wrong(change, said):
    found = differences([change(parse("results", RESULTS))])
    assert any(said in str(difference) for difference in found)


# Bad input.


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOURCE.replace("tab:results", "tab:other"), "no table with the label tab:results$"),
        (SOURCE.replace("tab:results", "x").replace("sec:ways", "tab:results"), "not the label"),
        (SOURCE.replace(r"\multirow{1}{*}{Net-large}", r"\multirow{1}{*"), "braces do not match"),
        (SOURCE.replace(r"\end{tabular}}", "}"), "does not end|not the label"),
    ],
    ids=["label missing", "label of a section", "braces", "no end"],
)
def test_latex_that_does_not_fit(source, said):
    with pytest.raises(InvalidArgumentError, match=said):
        compare(transcribed(), source)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"hello", "not LaTeX with tables"),
        (None, "cannot read"),
    ],
    ids=["binary", "prose", "missing"],
)
def test_files_that_are_no_paper(tmp_path, content, said):
    path = tmp_path / "paper.tex"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=said):
        read_source(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "broken.toml is not TOML"),
        ("rows = []", "broken.toml lacks 'fields'"),
        (MINIMAL + "rows = [{ model = 'x' }]", "row 1 lacks 'values'"),
        (MINIMAL + "rows = [{ values = { b = 1 } }]", "row 1: 'b' is not among the fields"),
        (MINIMAL + "rows = [{ values = { a = true } }]", "row 1, 'a': a value must be a number"),
        (MINIMAL + "rows = [{ values = { a = [] } }]", "row 1, 'a': a value must be a number"),
        (MINIMAL + "rows = [{ values = {}, spreads = { a = 1 } }]", "a spread but no value"),
        (MINIMAL + "rows = [{ values = { a = 1 }, spreads = { a = 'x' } }]", "is not a number"),
        (MINIMAL + "rows = [{ values = {}, modle = 'x' }]", "unknown key 'modle'"),
        (MINIMAL + "rows = []\naxes = { line = ['method', 'row'] }", "a role must be one of"),
        (MINIMAL + "rows = [{ model = 1, values = {} }]", "row 1: model is not a text"),
        (MINIMAL + "rows = [{ values = 1 }]", "row 1: values and spreads must be tables"),
        (
            MINIMAL + "rows = [{ values = {}, prior_work = 'no' }]",
            "prior_work must be true or false",
        ),
        (MINIMAL + "rows = 1", "rows is not a list"),
        (
            "rows = []\ntable = { label = 1, title = '', kind = '' }\nfields = {}",
            "label is not a text",
        ),
        (MINIMAL.replace('{ a = { printed = "a" } }', "1") + "rows = []", "fields. is not a table"),
        (MINIMAL.replace('"text"', '"prose"') + "rows = []", "kind must be one of"),
    ],
)
def test_files_that_break_the_schema(text, said):
    with pytest.raises(InvalidArgumentError, match=said):
        parse("broken", text)


def test_unknown_names():
    with pytest.raises(InvalidArgumentError, match="there is no table 'nothing': choose one of"):
        load("nothing")
    table = load("glue_results")
    with pytest.raises(InvalidArgumentError, match="glue_results has no method 'LORA'"):
        table.select(method="LORA")
    with pytest.raises(InvalidArgumentError, match="has no role 'size'"):
        table.settings(size="base")


# The command.


def run(*args):
    return CliRunner().invoke(main, [str(arg) for arg in args])


def test_list_names_every_table():
    result = run("list", "--notes")
    assert result.exit_code == 0
    assert all(name in result.output for name in TABLES)


@pytest.fixture
def ablation(tmp_path):
    """A paper with the ablation alone, set from the transcription, in the paper's style."""
    table = load("ablation")
    lines = [
        " & ".join([row.method, *(f"{{\\bf {value}}}" for value in row.values.values())])
        for row in table.rows
    ]
    path = tmp_path / "paper.tex"
    path.write_text(
        r"\begin{table}\label{tab:ablation}\begin{tabular}{ccccc} \toprule"
        r" \multirow{2}{*}{Variants} & \multicolumn{2}{c}{Vision Tasks ($\mathcal{B}$ =5000)} &"
        r" \multicolumn{2}{c}{Language Tasks ($\mathcal{B}$ =1000)} \\ \cmidrule{2-5}"
        r" & OxfordPets & DTD & QQP & CoLA \\ \midrule "
        + " \\\\\n".join(lines)
        + r" \\ \bottomrule \end{tabular}\end{table}",
        encoding="utf-8",
    )
    return path


def test_compare_says_that_all_agrees(ablation):
    result = run("compare", ablation, "--table", "ablation")
    assert result.exit_code == 0
    assert "Everything agrees." in result.output


def test_compare_lists_what_differs_and_fails(ablation):
    ablation.write_text(ablation.read_text().replace("76.8", "78.6"))
    result = run("compare", ablation, "--table", "ablation")
    assert result.exit_code == 1
    assert "ablation.toml, V1, DTD: transcribed 76.8, printed 78.6" in result.output
    assert "main: 1 of " in result.output


def test_compare_tells_a_missing_label_in_one_line(ablation):
    result = run("compare", ablation, "--table", "complexity")
    assert result.exit_code == 2
    assert result.output == "main: the LaTeX has no table with the label tab:complexity\n"

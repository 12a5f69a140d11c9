"""The notebooks show what their code prints: the outputs that are stored are those of a run."""

import base64
import json

import pytest

from .pages import DOCS

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
LARGEST = 400_000
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def text(parts):
    return parts if isinstance(parts, str) else "".join(parts)


def outputs(cells):
    """What each cell of code prints and returns, as text."""
    for cell in cells:
        if cell["cell_type"] == "code":
            yield "".join(
                text(one["text"] if one["output_type"] == "stream" else one["data"]["text/plain"])
                for one in cell["outputs"]
            )


def test_the_notebooks_are_these():
    assert [path.stem for path in NOTEBOOKS] == ["theory"]


@each_notebook
def test_a_notebook_was_run_once_from_top_to_bottom_without_an_error(path):
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert {one["output_type"] for cell in cells for one in cell["outputs"]} <= {
        "stream", "execute_result", "display_data",
    }  # fmt: skip
    assert not [one for cell in cells for one in cell["outputs"] if one.get("name") == "stderr"]


@each_notebook
def test_a_notebook_is_small_and_its_pictures_are_pictures(path):
    assert path.stat().st_size < LARGEST
    found = [
        base64.b64decode(text(one["data"]["image/png"]))
        for cell in read(path)["cells"]
        for one in cell.get("outputs", [])
        if "image/png" in one.get("data", {})
    ]
    assert found
    assert all(picture.startswith(b"\x89PNG") for picture in found)


@pytest.mark.deep
@each_notebook
def test_a_notebook_prints_what_is_stored_in_it(path, tmp_path, monkeypatch):
    # Imported here, because they take seconds that the fast tier does not need.
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=None, coalesce_streams=True, kernel_name="python3", resources=resources
    ).execute()
    assert list(outputs(notebook["cells"])) == list(outputs(read(path)["cells"]))

"""The notebook shows what its code prints: the outputs that are stored are those of a run."""

import base64
import json

import pytest

from .pages import DOCS

(PATH,) = sorted((DOCS / "notebooks").glob("*.ipynb"))
LARGEST = 400_000
CELLS = [one for one in json.loads(PATH.read_text(encoding="utf-8"))["cells"]
         if one["cell_type"] == "code"]  # fmt: skip
OUTPUTS = [one for cell in CELLS for one in cell["outputs"]]


def text(parts):
    return parts if isinstance(parts, str) else "".join(parts)


def printed(cells):
    """What each cell of code prints and returns, as text."""
    return [
        "".join(
            text(one["text"] if one["output_type"] == "stream" else one["data"]["text/plain"])
            for one in cell["outputs"]
        )
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_it_was_run_once_from_top_to_bottom_without_an_error():
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    kinds = {"stream", "execute_result", "display_data"}
    assert {one["output_type"] for one in OUTPUTS} <= kinds
    assert not [one for one in OUTPUTS if one.get("name") == "stderr"]


def test_it_is_small_and_its_pictures_are_pictures():
    assert PATH.stat().st_size < LARGEST
    found = [one["data"]["image/png"] for one in OUTPUTS if "image/png" in one.get("data", {})]
    assert found
    assert all(base64.b64decode(text(one)).startswith(b"\x89PNG") for one in found)


@pytest.mark.deep
def test_it_prints_what_is_stored_in_it(tmp_path, monkeypatch):
    # Imported here, because they take seconds that the fast tier does not need.
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    notebook = nbformat.read(PATH, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(
        notebook, timeout=None, coalesce_streams=True, kernel_name="python3", resources=resources
    ).execute()
    assert printed(notebook["cells"]) == printed(CELLS)

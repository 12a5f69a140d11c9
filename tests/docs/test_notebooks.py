"""The notebook shows what its code prints: the outputs that are stored are those of a run."""

import base64
import json

import pytest

from .pages import DOCS

(PATH,) = sorted((DOCS / "notebooks").glob("*.ipynb"))
LARGEST = 400_000
NOTEBOOK = json.loads(PATH.read_text(encoding="utf-8"))
CELLS = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
OUTPUTS = [output for cell in CELLS for output in cell["outputs"]]


def text(parts):
    return parts if isinstance(parts, str) else "".join(parts)


def printed(cells):
    """What each cell of code prints and returns, as text."""
    return [
        "".join(
            text(part["text"] if part["output_type"] == "stream" else part["data"]["text/plain"])
            for part in cell["outputs"]
        )
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def test_it_was_run_once_from_top_to_bottom_without_an_error():
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    kinds = {"stream", "execute_result", "display_data"}
    assert {output["output_type"] for output in OUTPUTS} <= kinds
    assert not [output for output in OUTPUTS if output.get("name") == "stderr"]


def test_it_is_small_and_its_pictures_are_pictures():
    assert PATH.stat().st_size < LARGEST
    shown = [output.get("data", {}) for output in OUTPUTS]
    pictures = [formats["image/png"] for formats in shown if "image/png" in formats]
    assert pictures
    assert all(base64.b64decode(text(picture)).startswith(b"\x89PNG") for picture in pictures)


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

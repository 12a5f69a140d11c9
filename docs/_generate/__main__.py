"""Write what is made from the code into its pages: ``python docs/_generate``.

Each page has it between two comments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from gallery import gallery
from tables import adapters, checks, columns, methods, names

DOCS = Path(__file__).parents[1]
START = "<!-- Made by `python docs/_generate`; do not edit. -->"
END = "<!-- The end of what is made. -->"
PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "gallery.md": gallery,
    "reference/adapters-that-can-be-read.md": adapters,
    "reference/api.md": names,
    "reference/checks.md": checks,
    "reference/columns.md": columns,
    "reference/methods.md": methods,
}


def filled(page: str) -> str:
    """The text of a page with what is made now."""
    before, _, after = (DOCS / page).read_text(encoding="utf-8").partition(START)
    made = "\n".join(PAGES[page]()).strip()
    return f"{before}{START}\n\n{made}\n\n{END}{after.partition(END)[2]}"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(filled(page), encoding="utf-8")

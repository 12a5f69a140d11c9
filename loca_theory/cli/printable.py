"""Text of unknown origin, such as names in checkpoints, made safe to print; notes on stderr."""

from __future__ import annotations

from unicodedata import category

import click

# Control characters, invisible ones that change the direction, halves of pairs, line separators.
_CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What begins with these is a formula in a spreadsheet (OWASP, CSV injection).
_FORMULAS = tuple("=+-@\t\r")


def printable(text: str, keep: str = "") -> str:
    """Show control characters as escapes such as ``\\x1b``, except those to keep."""
    return "".join(
        character.encode("unicode_escape").decode()
        if category(character) in _CONTROLS and character not in keep
        else character
        for character in text
    )


def csv_cell(value: object) -> object:
    """A cell of a CSV file: text is printable and not a formula, a shape is ``PxQ``."""
    if isinstance(value, list | tuple):
        is_shape = all(isinstance(number, int) for number in value)
        value = ("x" if is_shape else " ").join(map(str, value))
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULAS) else printable(value)


def note(text: str) -> None:
    """Print a note on stderr, on one line even if it names a file with a line break in its name."""
    click.echo(f"note: {printable(' '.join(text.splitlines()))}", err=True)

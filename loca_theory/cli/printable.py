"""Text of unknown origin, such as names in checkpoints, made safe to print."""

from __future__ import annotations

from unicodedata import category

# Control characters, invisible ones that change the direction, halves of pairs, line separators.
_CONTROLS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What begins with these is a formula in a spreadsheet (OWASP, CSV injection).
_FORMULAS = tuple("=+-@\t\r")


def printable(text: str, keep: str = "") -> str:
    """Show control characters as escapes such as ``\\x1b``, except those to keep."""
    return "".join(
        one.encode("unicode_escape").decode()
        if category(one) in _CONTROLS and one not in keep
        else one
        for one in text
    )


def csv_cell(value: object) -> object:
    """A cell of a CSV file: text is printable and not a formula, everything else is as it was."""
    if not isinstance(value, str):
        return value
    return f"'{printable(value)}" if value.startswith(_FORMULAS) else printable(value)

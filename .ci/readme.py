"""Print the two commands that README.md gives a stranger: the main comparison, and the tests.

Whoever changes README.md so that they are gone or of another form is told so here, and not by a
green run that tested something else or nothing.
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INSTALL = r"python3 -m venv \.venv && \.venv/bin/pip install -c constraints\.txt "
COMPARE = r"\.venv/bin/loca-theory simulate --K \d+ --r [\d.,]+"
COMMANDS = {
    "the main comparison": re.compile(rf"{INSTALL}\. && {COMPARE}"),
    "the tests": re.compile(rf'{INSTALL}"\.\[test\]" && \.venv/bin/python -m pytest -n logical'),
}


def commands(text: str) -> list[str]:
    """The commands, in the order of ``COMMANDS``; exits with one line where one is not there."""
    found = []
    for purpose, form in COMMANDS.items():
        blocks = [block.strip() for block in BLOCK.findall(text)]
        fitting = [block for block in blocks if form.fullmatch(block)]
        if len(fitting) != 1:
            sys.exit(
                f"README.md has {len(fitting)} commands that install the package and run {purpose};"
                f" it needs one, alone in a block of sh, of the form {form.pattern}"
            )
        found += fitting
    return found


if __name__ == "__main__":
    try:
        readme = Path(sys.argv[1]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"README.md cannot be read: {error}")
    print(*commands(readme), sep="\n")

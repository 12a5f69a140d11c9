"""Run a script of PEFT's benchmark, ``method_comparison``, with LoCA registered.

In a checkout of PEFT whose version this package supports, installed with ``pip install -e``:

    cd peft/method_comparison/MetaMathQA
    cp -r LOCA_THEORY/experiments/method_comparison/loca experiments/
    python LOCA_THEORY/experiments/method_comparison/launch.py run.py -v \\
        experiments/loca/llama-3.2-3B-n_frequency-5000

The arguments after ``run.py`` are those of ``run.py``. This is a script and not a module of
``experiments``, because PEFT's folder has a folder ``experiments`` too.
"""

import runpy
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Register LoCA with PEFT and run a script as ``python SCRIPT ARGUMENTS`` does."""
    if not arguments or not Path(arguments[0]).is_file():
        problem = f"{arguments[0]} is not a file" if arguments else "there is no script"
        sys.exit(f"{problem}; usage: python launch.py run.py [OPTIONS] experiments/loca/NAME")

    import loca_theory.adapters  # noqa: F401

    sys.argv[:] = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])

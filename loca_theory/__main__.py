"""``python -m loca_theory``: the same as ``loca-theory``."""

from loca_theory.cli import main

if __name__ == "__main__":
    main()

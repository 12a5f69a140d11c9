"""Run ``loca-theory`` by ``python -m loca_theory``."""

from loca_theory.cli import main

if __name__ == "__main__":
    main()

"""The core ablation on a pretrained sentence transformer, over eight kinds of tasks.

``design.toml`` has what is compared and how, fixed before the runs; ``trials`` are the runs that it
asks for, ``runs`` trains them, and ``analysis`` compares. ``python -m experiments.pretrained``
continues the runs, or prints their result.
"""

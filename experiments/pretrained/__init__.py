"""The core ablation on a pretrained sentence transformer, over eight kinds of tasks.

``design.toml`` has what is compared and how, fixed before the runs; ``runs`` trains, and
``analysis`` compares. ``python -m experiments.pretrained`` repeats the runs, or prints
their result.
"""

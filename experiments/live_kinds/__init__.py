"""The core ablation on a pretrained sentence transformer, after a diagnosis of failed runs.

A kind of tasks is live if full fine-tuning leads linear probing by 2 points or more in it.
``design.toml`` has what is compared and how, fixed before the runs; ``phases`` has the rules by
which each run follows from those before, ``verdicts`` compares, and ``power`` says what can be
seen. ``python -m experiments.live_kinds`` continues the runs, or prints their result. It shares
code, tasks and protocol with the first study, ``experiments.pretrained``.
"""

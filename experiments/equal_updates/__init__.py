"""Are adapters of PEFT alike at rates by which their first updates are equally large?

``design.toml`` has what is compared and how, fixed before the runs that count; ``phases`` has which
runs there are, and ``analysis`` what they say. Model, tasks and protocol are those of
``experiments.live_kinds``.
"""

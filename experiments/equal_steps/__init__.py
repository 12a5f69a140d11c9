"""Are methods alike when they are trained at equal steps? Adapters of PEFT at rates by three rules.

``design.toml`` has what is compared and how, fixed before the runs that count; ``phases`` has which
runs there are, and ``analysis`` what they say. Model, tasks and protocol are those of
``experiments.live_kinds``.
"""

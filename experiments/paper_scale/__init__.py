"""The paper's experiments at full size, for machines with a GPU and access to the Hugging Face hub.

``python -m experiments.paper_scale list`` lists the experiments and their settings, and what is not
run and why. Hyper-parameters are read from ``loca_theory/claims/printed_tables``;
``sources.toml`` has the hub names of checkpoints and data sets. Others, or local folders, can
replace them (``--model``, ``--data``); with ``HF_HUB_OFFLINE=1`` nothing is fetched. The paper
states no gradient clipping; here it is the Trainer's, to a norm of 1.

Needs ``pip install 'loca-theory[paper-scale]'``.
"""

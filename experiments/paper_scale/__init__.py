"""The paper's experiments at full size, for machines with a GPU and access to the Hugging Face hub.

``python -m experiments.paper_scale list`` lists the experiments and their settings, and what is not
run and why. Hyper-parameters are read from the transcribed tables (:mod:`experiments.paper`);
``sources.toml`` has the hub names of checkpoints and data sets. Local folders can replace them
(``--model``, ``--data``). The paper states no gradient clipping; here the gradient of each group
of parameters is clipped separately to a norm of 1.

Needs ``pip install 'loca-theory[paper-scale]'``.
"""

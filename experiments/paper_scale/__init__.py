"""The paper's own experiments at their own size, for whoever has a hub and a GPU.

``python -m experiments.paper_scale list`` shows what can be run, with which settings, and what is
not run and why. Hyper-parameters are read from the transcribed tables (:mod:`experiments.paper`);
``sources.toml`` holds the addresses of checkpoints and data sets. Any of them may be replaced by a
local folder (``--model``, ``--data``). The paper states no clipping of gradients: that of each
group of parameters is clipped on its own, to a norm of 1.

Needs ``pip install 'loca-theory[paper-scale]'``.
"""

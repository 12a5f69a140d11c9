"""Fine-tune small models with every method, under one protocol.

``tasks`` provides data and pretrained models, ``methods`` the methods with their learning rates and
budgets, ``adaptation`` adapts a model, ``training`` trains it for several seeds at once,
``protocol`` defines runs and the choice of learning rates, ``session`` runs and stores them over
all seeds, ``run_tables`` reads their tables, ``statistics`` has their means, and ``comparisons``
decides what was fixed before the runs. Chosen numbers are in the TOML files next to the code.
"""

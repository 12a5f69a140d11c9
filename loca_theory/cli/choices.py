"""What options can be set to, so that a command's help imports no package that computes.

A test compares these names with those of the packages.
"""

ENGINES = ("exact", "asymptotic", "monte-carlo")
SAMPLERS = ("reduced", "dense")
ACCOUNTINGS = ("paper", "main-text", "trainable", "dof", "bits")
PROTOCOLS = ("same-draw", "iid-reference")
STRUCTURES = (
    "shared-mean",
    "equicorrelated",
    "row-equicorrelated",
    "ar1",
    "blocks",
    "scaled",
    "spiked",
    "power-law",
)

"""Recovery rates in the paper's toy experiment, for its search for locations and for better ones.

- ``interpretations``: settings for what the paper's description leaves open.
- ``problems``: random problems in batches.
- ``searches``: algorithms that move components, from central differences to matching pursuit.
- :func:`toy`: the recovery rates with exact intervals, and traces of single problems.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Open a base and a fine-tuned checkpoint and analyse their increments.

Needs torch, which is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Check the theory of LoCA: what low-rank, Fourier and cosine adapters can reconstruct.

There is one function per task. Each of these functions returns a typed result with ``to_frame()``
and ``save(folder)``, and ``loca-theory`` has a command of the same name:

- ``simulate``: compute expected reconstruction errors of Gaussian matrices for each method.
- ``correlate``: compare methods on matrices with dependent entries, and measure how often
  statistical tests detect the dependence.
- ``toy``: measure how often training finds the true locations of a sparse increment.
- ``analyze``: describe what a fine-tune changed, and which adapter retains most of the change.
- ``extract``: convert a full fine-tune to the LoCA or LoRA adapter with the smallest error.
- ``verify``: check claims of the paper, and give each claim a verdict.
- ``methods``: list the methods. To add one, subclass ``Method``.

Further functions draw results and supply data:

- ``plot``: draw a result. ``report`` makes an HTML page of a result.
- ``figure``: draw a figure of the paper from stored data (command: ``loca-theory figures``).
- ``demo_pair``: make a small pair of checkpoints, to try ``analyze`` and ``extract``.

>>> import loca_theory as loca
>>> found = loca.simulate(768, ranks=[8], methods=["LoCA", "Fourier pairs"], engine="exact")
>>> found.to_frame()["error"].round(4)
0    0.9128
1    0.9267
Name: error, dtype: float64

Each module is imported only when it is used, so computing exact values does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

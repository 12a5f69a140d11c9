"""Rules that move the components of a sparse spectrum, as pure functions of tensors.

The adapters and the toy experiment both use them.

- :func:`location_gradient`: the gradient with respect to a location, from differences of Z.
- :func:`swap`, :func:`reselect`: moves across the whole spectrum, which compare how much a new
  component can decrease the loss with how much the removal of another one increases it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
